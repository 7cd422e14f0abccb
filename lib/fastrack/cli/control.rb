# frozen_string_literal: true

require "json"
require "socket"
require "stringio"
require_relative "../configuration"
require_relative "../error"
require_relative "../process/pid_file"
require_relative "../text"
require_relative "folder_server"
require_relative "outcome"
require_relative "proc_status"
require_relative "status_table"
require_relative "stop_outcome"

module Fastrack
  # The commands for a running server. They ask its monitor, by the unix socket; where there is none, the pid file and /proc
  # have to do. Where nothing names the server, it is the one that runs in the current directory.
  class Control
    # What the monitor is asked, and the signal that does the same.
    ORDERS = {
      reload: ["/phased-restart", "HUP"], restart: ["/restart", "USR2"], refork: ["/refork", "URG"], stop: ["/stop", "TERM"],
      more: ["/workers/+1", "TTIN"], less: ["/workers/-1", "TTOU"]
    }.freeze

    NO_NEW_CODE = "The app is preloaded: new workers get the code that the master has. `fastrack restart` loads new code."

    # Seconds between two looks with --watch, and between the two that a rate takes.
    PAUSE = 1
    SAMPLE = 0.5

    # What starts processes, whose outcome is waited for.
    STARTS = %i[reload restart refork].freeze

    # Where Rails has it.
    USUAL_PID = "tmp/pids/server.pid"

    # @param arguments [Arguments]
    # @param options [Hash] see Configuration
    # @param overrides [Hash] see Configuration
    # @raise [Error]
    def initialize(arguments, options, overrides)
      @arguments = arguments
      silent = StringIO.new
      given = overrides.slice(:Pid, :ControlPath).select { |_, path| path }.transform_values { |path| Text.expand(path) }
      configuration = Configuration.new(options, overrides: overrides.merge(given), output: silent, warnings: silent)
      enter(configuration.working_directory)
      @path = configuration.control&.path
      @pid_file = configuration.pid || (USUAL_PID if File.file?(USUAL_PID))
      # A server in the same directory may be another one than that of this configuration.
      @configuration = configuration
      @named = !(@path || configuration.pid).nil?
      @path ||= "#{@pid_file.delete_suffix(".pid")}.control" if @pid_file && configuration.control_path != false
    end

    # @return [Integer] the exit status: 0 if the server runs, and serves
    # @raise [Error]
    def run
      case @arguments.action
      when :status then status
      when :workers then change_workers(@arguments.change)
      when *STARTS then start(@arguments.action)
      when :stop then stop
      else puts order(@arguments.action)
      end
      @arguments.action == :status && !@serves ? 1 : 0
    rescue Interrupt
      0
    end

    private

    # The server's files are named from there.
    def enter(directory)
      Dir.chdir(directory) if directory
    rescue SystemCallError => e
      raise Error, "cannot enter #{directory} (WorkingDirectory): #{SafeFile.reason(e)}"
    end

    def status
      before = look
      return puts(JSON.pretty_generate(before)) if @arguments.json? && !@arguments.watch?

      table = StatusTable.new
      pause = SAMPLE
      loop do
        sleep(pause)
        now = look
        puts @arguments.json? ? JSON.generate(now) : table.text(before, now, clear: @arguments.watch?)
        break unless @arguments.watch?

        before = now
        pause = PAUSE
      end
    end

    # @return [Hash] as /status.json
    def look
      found = told || ProcStatus.of(pid)
      @serves = %w[serving running].include?(found["phase"])
      found
    end

    # @return [Hash, nil] nil if there is no monitor
    def told
      ask("GET", "/status.json")&.then { |answer| JSON.parse(answer) }
    rescue JSON::ParserError
      raise Error, "the monitor at #{@path} has answered with a part of its status"
    end

    # One at a time: signals of one kind that wait are one.
    def change_workers(change)
      change.abs.times do |index|
        before = look["workers_wanted"]
        puts order(change.positive? ? :more : :less)
        next if index == change.abs - 1

        50.times { look["workers_wanted"] == before ? sleep(0.1) : break }
      end
    end

    def order(name)
      path, signal = ORDERS.fetch(name)
      # Once: a server that stops cannot be found again.
      master = pid unless ask("POST", path)
      Process.kill(signal, master) if master
      "#{signal} sent#{" to #{master}" if master}#{"; see the server's log for the result" unless [*STARTS, :stop].include?(name) && !@arguments.no_wait?}"
    rescue Errno::EPERM
      raise Error, "process #{master} belongs to another user"
    rescue Errno::ESRCH
      raise Error, "process #{master} has just ended"
    end

    # Has new workers, or a new master, start.
    #
    # @raise [Error] when they do not serve
    def start(name)
      signal = ORDERS.fetch(name).last
      master = told&.fetch("pid") || pid
      raise Error, "process 1 starts no new master, as its end is that of its container: replace the container" if signal == "USR2" && master == 1

      outcome = Outcome.new(master, signal, limit(signal)) unless @arguments.no_wait?
      puts order(name)
      puts NO_NEW_CODE if signal == "HUP" && @configuration.preload_app
      $stdout.flush
      puts format("ready in %.1f s", outcome.await) if outcome&.visible?
    end

    # Has the server end.
    #
    # @raise [Error] when it does not
    def stop
      answers = told
      master = answers&.fetch("pid") || pid
      seconds = answers&.fetch("stop_seconds", nil) || limit("TERM")
      outcome = StopOutcome.new(master, seconds, answers: !answers.nil?) { answers ? answering? : PidFile.running?(master) }
      puts order(:stop)
      return if @arguments.no_wait?

      $stdout.flush
      puts format("stopped in %.1f s", outcome.await)
    end

    # Whether there is still a monitor. One that is about to end may cut a connection.
    def answering?
      !told.nil?
    rescue Error
      true
    end

    # Seconds after which the server has also given up; 0: never.
    def limit(signal)
      return @configuration.drain_delay + @configuration.graceful_timeout if signal == "TERM"
      return @configuration.boot_timeout + @configuration.graceful_timeout if signal == "USR2"

      @configuration.worker_boot_timeout * [@configuration.max_workers, 1].max
    end

    # @return [String, nil] the body; nil if there is no monitor
    def ask(verb, target)
      return unless @path

      head, body = exchange("#{verb} #{target} HTTP/1.0\r\nHost: localhost\r\n\r\n").split("\r\n\r\n", 2)
      status = head.to_s[%r{\AHTTP/1\.\d (\d+)}, 1].to_i
      return body.to_s if status.between?(200, 299)

      raise Error, "the monitor at #{@path} answers: #{status.zero? ? "nothing" : body.to_s.strip}"
    rescue Errno::ENOENT, Errno::ECONNREFUSED, ArgumentError
      # No socket can have a path that is so long (ArgumentError).
      nil
    rescue SystemCallError => e
      raise Error, "the monitor at #{@path}: #{SafeFile.reason(e)}"
    end

    # The answer may take five seconds.
    def exchange(request)
      answer = +""
      UNIXSocket.open(@path) do |socket|
        socket.write(request)
        deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 5
        loop do
          # A master that is stopped (SIGSTOP) is connected to, and says nothing.
          left = deadline - Process.clock_gettime(Process::CLOCK_MONOTONIC)
          raise Error, "the monitor at #{@path} does not answer" unless left.positive? && socket.wait_readable(left)

          answer << socket.readpartial(65_536)
        end
      end
    rescue EOFError
      answer
    end

    # @return [Integer]
    def pid
      found = (@pid_file && PidFile.owner(@pid_file)) || (FolderServer.pid unless @named)
      return found if found
      raise Error, no_server unless @path || @pid_file

      raise Error, "no server runs: #{[@path && "nobody listens at #{@path}", @pid_file && "#{@pid_file} has no running process"].compact.join(", and ")}"
    end

    def no_server
      "no server found: name its ConfigFile (-c), its pid file (-P) or its socket (--control); none of this user's runs in #{Dir.pwd}"
    end
  end
end
