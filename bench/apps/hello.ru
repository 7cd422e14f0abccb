# frozen_string_literal: true

# The smallest answer: the server's own cost.
run(lambda do |_env|
  [200, { "content-type" => "text/plain", "content-length" => "12" }, ["Hello world\n"]]
end)
