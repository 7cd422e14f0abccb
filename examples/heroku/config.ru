# frozen_string_literal: true

# A page that tells what serves it.
run lambda { |_env|
  [200, { "content-type" => "text/plain" }, ["Dyno #{ENV.fetch("DYNO", "?")}, worker #{Process.pid}\n"]]
}
