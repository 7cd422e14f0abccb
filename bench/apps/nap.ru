# frozen_string_literal: true

# Requests that wait for a millisecond, as for a cache: long enough that a worker's other threads are needed.
run(lambda do |_env|
  sleep 0.001
  [200, { "content-type" => "text/plain", "content-length" => "5" }, ["done\n"]]
end)
