# frozen_string_literal: true

# The smallest answer: what is measured is the server.
run(lambda do |_env|
  [200, { "content-type" => "text/plain", "content-length" => "12" }, ["Hello world\n"]]
end)
