# frozen_string_literal: true

# Calls a config.ru's app again and again, in one process with one thread and no server: call.rb CONFIG_RU SECONDS, with the
# requests in the first line of standard input, see ../app_alone.rb. It prints "ready" when it has warmed up, waits for another line,
# prints the CPU time of a call in microseconds, and how many calls that were, and waits for the end of standard input. The servers' Rubies run it.

require "json"
require "rack"
require "rack/mock"
require "stringio"

# @return [Proc] makes the request, as a server would hand it to the app
def caller_of(app, verb:, path:, headers:, body:, **)
  fields = headers.to_h { |name, value| [name.to_s.upcase.tr("-", "_").then { |key| key == "CONTENT_TYPE" ? key : "HTTP_#{key}" }, value] }
  env = Rack::MockRequest.env_for("http://localhost#{path}", method: verb, "REMOTE_ADDR" => "127.0.0.1", **fields)
  env["CONTENT_LENGTH"] = body.bytesize.to_s if body
  lambda do
    status, _headers, parts = app.call(env.merge("rack.input" => StringIO.new(body.to_s)))
    raise "#{path}: #{status}" unless status == 200

    # A server sends a file by itself.
    parts.each { |part| part } unless parts.respond_to?(:to_path)
    parts.close if parts.respond_to?(:close)
  end
end

def now(clock) = Process.clock_gettime(clock)

# @return [Array(Float, Integer)] microseconds of CPU time for a call, and calls
def measure(calls, seconds)
  done = 0
  before = now(Process::CLOCK_PROCESS_CPUTIME_ID)
  deadline = now(Process::CLOCK_MONOTONIC) + seconds
  while now(Process::CLOCK_MONOTONIC) < deadline
    calls.each(&:call)
    done += calls.size
  end
  [(now(Process::CLOCK_PROCESS_CPUTIME_ID) - before) * 1e6 / done, done]
end

ru, seconds = ARGV
app = Rack::Builder.parse_file(ru)
# Rack 2 has options beside it.
app = app.first if app.is_a?(Array)
# Each as often as its share is.
calls = JSON.parse($stdin.gets, symbolize_names: true).flat_map { |request| [caller_of(app, **request)] * request[:weight] }
measure(calls, Float(seconds) / 2)
$stdout.sync = true
puts "ready"
exit unless $stdin.gets
# The best of some: what else the machine does makes calls dearer, never cheaper, and this is to be a lower bound.
slices = Array.new(4) { measure(calls, Float(seconds) / 4) }
puts "#{slices.map(&:first).min} #{slices.sum(&:last)}"
# The CPU time of the database's processes can be read while they live.
$stdin.read
