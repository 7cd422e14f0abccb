# frozen_string_literal: true

require "json"
require "tmpdir"
require_relative "eventually"
require_relative "server"

# A Ruby program that has servers inside itself, seen from outside.
class InProcess
  # `request` is one request over a connection of its own; `facts` are what the process has open and how it is set up.
  PRELUDE = <<~'RUBY'
    require "fastrack"
    require "json"
    require "net/http"
    $stdout.sync = true

    def request(server, path = "/")
      Net::HTTP.get_response(URI("#{server.url}#{path}"))
    end

    # A thread may end while they are read, and is there for a moment after its end.
    def helpers
      Dir.glob("/proc/self/task/*/comm").count do |file|
        File.read(file) == "fastrack helper\n"
      rescue Errno::ENOENT, Errno::ESRCH
        false
      end
    end

    # The C library takes a signal for itself with a process's first thread, and Timeout has a thread for good.
    def facts
      Timeout.timeout(60) { Thread.new {}.join }
      { threads: Thread.list.size, descriptors: Dir.children("/proc/self/fd").size, helpers: helpers,
        signals: File.readlines("/proc/self/status").grep(/^Sig(?:Blk|Ign|Cgt)/), title: File.read("/proc/self/cmdline") }
    end

    def wait_until(seconds = 60)
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
      until (value = yield)
        raise "not within #{seconds} s" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
        sleep 0.01
      end
      value
    end
  RUBY

  Result = Struct.new(:status, :output)

  attr_reader :pid

  # Runs a program, after the PRELUDE, to its end, for which it has so many seconds, and gives the Result.
  def self.run(script, patience: 120, **keywords)
    program = new(script, **keywords)
    Result.new(program.wait(patience), program.output)
  ensure
    program&.end_now
  end

  # Runs one whose last line of output is JSON, and gives what that says.
  def self.json(script, **keywords)
    result = run(script, **keywords)
    raise "#{result.status.inspect}\n#{result.output}" unless result.status.success?

    JSON.parse(result.output.lines.last, symbolize_names: true)
  end

  # @param files [Hash{String => String}] in its working directory
  def initialize(script, environment: {}, files: {}, arguments: [])
    @dir = Dir.mktmpdir("fastrack-in-process")
    files.merge("program.rb" => PRELUDE + script).each { |name, text| Folder.write(@dir, name, text) }
    command = [RbConfig.ruby, "-w", "-I", Server::LIB, *arguments, "program.rb"]
    @pid = spawn(Server::CLEAN_ENVIRONMENT.merge(environment), *command,
                 chdir: @dir, in: File::NULL, out: File.join(@dir, "log"), err: %i[child out])
  end

  def output = File.read(File.join(@dir, "log")).scrub

  def wait(patience = 120)
    Eventually.eventually(patience, -> { "the program's end:\n#{output}" }) do
      _, @status = Process.wait2(@pid, Process::WNOHANG)
      @status
    end
  end

  # Whatever has become of it.
  def end_now
    return unless @dir

    unless @status
      Process.kill(:KILL, @pid)
      Process.wait(@pid)
    end
    FileUtils.remove_entry(@dir)
    @dir = nil
  end
end
