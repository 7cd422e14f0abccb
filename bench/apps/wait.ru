# frozen_string_literal: true

# Requests that wait for something else, as for a database: 20 ms, or 200 ms for /slow. How long that took, the app says
# itself.
run(lambda do |env|
  began = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
  sleep(env["PATH_INFO"] == "/slow" ? 0.200 : 0.020)
  took = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond) - began
  [200, { "content-type" => "text/plain", "content-length" => "5", "x-service-time" => took.to_s }, ["done\n"]]
end)
