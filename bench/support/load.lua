-- What wrk does beyond its defaults. Told by the environment:
--   BENCH_REQUEST    file with the bytes of the request, sent as they are
--   BENCH_ADDRESSES  host:port pairs, given to the threads in turn
--   BENCH_THINK_MS   mean of an exponential pause before each request; empty: none
--   BENCH_REQUESTS   stop after so many answers (one thread only); empty: when told to
-- Prints one line, RESULT and JSON, when done.

local file = assert(io.open(os.getenv("BENCH_REQUEST"), "rb"))
local bytes = file:read("*a")
file:close()

-- wrk.init would build the request from its parts, in an order of its own. Leaving the global
-- `request` undefined keeps it static: no Lua runs for a request.
function wrk.init()
   wrk.request = function() return bytes end
end

local addresses = {}
for host, port in os.getenv("BENCH_ADDRESSES"):gmatch("([%d.]+):(%d+)") do
   addresses[#addresses + 1] = { host, port }
end

local threads = 0
function setup(thread)
   threads = threads + 1
   local address = addresses[(threads - 1) % #addresses + 1]
   thread.addr = wrk.lookup(address[1], address[2])[1]
   thread:set("number", threads)
end

local think = tonumber(os.getenv("BENCH_THINK_MS") or "")
if think then
   local seeded = false
   function delay()
      if not seeded then
         math.randomseed(number)
         seeded = true
      end
      return -math.log(1 - math.random()) * think
   end
end

local left = tonumber(os.getenv("BENCH_REQUESTS") or "")
if left then
   function response()
      left = left - 1
      if left == 0 then
         wrk.thread:stop()
         io.write("ENOUGH\n")
         io.flush()
      end
   end
end

function done(summary, latency)
   local errors = summary.errors
   local format = 'RESULT {"requests":%d,"duration_us":%d,"bytes":%d,' ..
      '"p50_us":%d,"p95_us":%d,"p99_us":%d,"max_us":%d,"errors":' ..
      '{"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d}}\n'
   io.write(format:format(summary.requests, summary.duration, summary.bytes,
      latency:percentile(50), latency:percentile(95), latency:percentile(99), latency.max,
      errors.connect, errors.read, errors.write, errors.status, errors.timeout))
end
