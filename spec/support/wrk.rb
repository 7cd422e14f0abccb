# frozen_string_literal: true

# wrk(1), which loads a server with as many requests as that takes while an example does something to it, and counts what
# fails: connections that are refused or end without an answer, answers that never come, statuses that are no success.
class Wrk
  COMMAND = "wrk"
  CONNECTIONS = 8

  # Seconds after which it ends anyway, and that one answer may take.
  LONGEST = 600
  TIMEOUT = 20

  class Failed < StandardError; end

  def self.installed?
    ENV["PATH"].split(File::PATH_SEPARATOR).any? { |folder| File.executable?(File.join(folder, COMMAND)) }
  end

  def self.run(server, kept:)
    wrk = new("http://127.0.0.1:#{server.port}/", kept)
    yield
    wrk.tap(&:stop)
  ensure
    wrk&.kill
  end

  attr_reader :requests, :failures

  def initialize(url, kept)
    arguments = ["-t1", "-c#{CONNECTIONS}", "-d#{LONGEST}s", "--timeout", "#{TIMEOUT}s"]
    arguments += ["-H", "Connection: close"] unless kept
    @output = IO.popen([COMMAND, *arguments, url], err: %i[child out])
  end

  # It ends in good order on INT, whatever time is left.
  def stop
    Process.kill(:INT, @output.pid)
    text = @output.read
    @output.close
    @requests = text[/^\s*(\d+) requests in /, 1].to_i
    @failures = text.lines(chomp: true).grep(/Socket errors|Non-2xx/)
    raise Failed, "wrk has not done its work:\n#{text}" if @requests.zero?
  end

  # Where something went wrong before it was stopped.
  def kill
    return if @output.closed?

    Process.kill(:KILL, @output.pid)
    @output.close
  end
end
