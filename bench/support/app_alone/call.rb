# frozen_string_literal: true

# Calls a config.ru's app again and again, in one process with one thread and no server: call.rb CONFIG_RU SECONDS, with the
# requests in the first line of standard input, see ../app_alone.rb. It prints "ready" when it has warmed up, waits for another line,
# prints the CPU time of a call in microseconds, and how many calls that were, and waits for the end of standard input. The servers' Rubies run it.

require "json"
require "rack"
require "stringio"

# One request, as a server would hand it to the app.
class Call
  def initialize(verb:, path:, headers:, body:, **)
    @body = body
    @env = { "REQUEST_METHOD" => verb, "SCRIPT_NAME" => "", "PATH_INFO" => path[/[^?]*/], "QUERY_STRING" => path[/\?(.*)/, 1].to_s,
             "REQUEST_URI" => path, "SERVER_NAME" => "localhost", "SERVER_PORT" => "80", "SERVER_PROTOCOL" => "HTTP/1.1",
             "HTTP_VERSION" => "HTTP/1.1", "HTTP_HOST" => "localhost", "REMOTE_ADDR" => "127.0.0.1", "rack.url_scheme" => "http",
             "rack.errors" => $stderr, "rack.multithread" => true, "rack.multiprocess" => true, "rack.run_once" => false }
    headers.each { |name, value| @env[field(name.to_s)] = value }
    @env["CONTENT_LENGTH"] = body.bytesize.to_s if body
  end

  def run(app)
    status, _headers, body = app.call(@env.merge("rack.input" => StringIO.new(@body.to_s)))
    raise "#{@env["REQUEST_URI"]}: #{status}" unless status == 200

    # A server sends a file by itself.
    body.each { |part| part } unless body.respond_to?(:to_path)
    body.close if body.respond_to?(:close)
  end

  private

  def field(name)
    key = name.upcase.tr("-", "_")
    key == "CONTENT_TYPE" ? key : "HTTP_#{key}"
  end
end

def now(clock) = Process.clock_gettime(clock)

# @return [Array(Float, Integer)] microseconds of CPU time for a call, and calls
def measure(app, calls, seconds)
  done = 0
  before = now(Process::CLOCK_PROCESS_CPUTIME_ID)
  deadline = now(Process::CLOCK_MONOTONIC) + seconds
  while now(Process::CLOCK_MONOTONIC) < deadline
    calls.each { |call| call.run(app) }
    done += calls.size
  end
  [(now(Process::CLOCK_PROCESS_CPUTIME_ID) - before) * 1e6 / done, done]
end

ru, seconds = ARGV
# Each as often as its share is.
requests = JSON.parse($stdin.gets, symbolize_names: true).flat_map { |request| [Call.new(**request)] * request[:weight] }
app = Rack::Builder.parse_file(ru)
# Rack 2 has options beside it.
app = app.first if app.is_a?(Array)
measure(app, requests, Float(seconds) / 2)
$stdout.sync = true
puts "ready"
exit unless $stdin.gets
# The best of some: what else the machine does makes calls dearer, never cheaper, and this is to be a lower bound.
slices = Array.new(4) { measure(app, requests, Float(seconds) / 4) }
puts "#{slices.map(&:first).min} #{slices.sum(&:last)}"
# The CPU time of the database's processes can be read while they live.
$stdin.read
