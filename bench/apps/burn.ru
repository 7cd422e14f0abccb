# frozen_string_literal: true

# Requests that burn CPU: 2 ms, or 40 ms for /slow. How long that took, the app says itself.
#
# It goes by the CPU clock of the thread: the workers share the cores with each other and with the load generator, and by
# the wall clock whoever waits for a core would do less work. The clock of the process would count the server's own
# threads as work of the app.
def burn(seconds)
  till = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + seconds
  200.times { |number| number * number } while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < till
end

run(lambda do |env|
  began = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
  burn(env["PATH_INFO"] == "/slow" ? 0.040 : 0.002)
  took = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond) - began
  [200, { "content-type" => "text/plain", "content-length" => "5", "x-service-time" => took.to_s }, ["done\n"]]
end)
