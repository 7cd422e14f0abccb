# frozen_string_literal: true

require "stringio"
require_relative "../configuration"
require_relative "../configuration/control_endpoints"
require_relative "../error"
require_relative "../process/pid_file"
require_relative "../process/proc_stat"
require_relative "../text"
require_relative "monitor_client"
require_relative "status_table"
require_relative "waiting"

module Fastrack
  # The commands for a running server. They ask its monitor, by the unix socket. Where there is none, orders are signals, to a process that
  # is known to be a master: by its pid file, or by its title and directory. Where nothing names the server, it is the one that runs in the
  # current directory.
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
      # A server in the same directory may be another one than that of this configuration.
      @configuration = configuration
      @path = configuration.control&.path
      @pid_file = configuration.pid || (USUAL_PID if File.file?(USUAL_PID))
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

    # @return [MonitorClient, nil] that of the server; nil if it has no monitor
    # @raise [Error] when there is no server
    def monitor
      @monitor ||= answering(@path) || answering(usual(pid))
    end

    # @param path [String, nil]
    # @return [MonitorClient, nil]
    def answering(path) = path && MonitorClient.new(path).then { |client| client if client.status }

    # @param master [Integer] a pid
    # @return [String, nil] where its monitor is if nothing names another place
    def usual(master)
      DefaultControlSocket.of(master)
    rescue SystemCallError
      nil
    end

    # @return [Hash] as /status.json
    # @raise [Error]
    def look
      found = monitor&.status
      # A new master may have another place.
      found ||= (@monitor = nil) || monitor&.status
      raise Error, "process #{pid} is a master without a monitor, which would know its state: set pid or control_path" unless found

      @serves = found["serves"]
      found
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

    # One at a time: signals of one kind that wait are one.
    def change_workers(change)
      change.abs.times do |index|
        before = look["workers_wanted"] unless change.abs == 1
        order(change.positive? ? :more : :less)
        next if index == change.abs - 1

        50.times { look["workers_wanted"] == before ? sleep(0.1) : break }
      end
    end

    # @return [Hash, nil] see MonitorClient#order; nil if it was sent as a signal
    def order(name)
      target, signal = ORDERS.fetch(name)
      sent = monitor&.order(target)
      # Once: a server that stops cannot be found again.
      master = sent ? sent["pid"] : pid
      Process.kill(signal, master) unless sent
      puts "#{signal} sent to #{master}#{"; see the server's log for the result" unless waits?(name)}"
      $stdout.flush
      sent
    rescue Errno::EPERM
      raise Error, "process #{master} belongs to another user"
    rescue Errno::ESRCH
      raise Error, "process #{master} has just ended"
    end

    def waits?(name) = [*STARTS, :stop].include?(name) && !@arguments.no_wait?

    # Has new workers, or a new master, start.
    #
    # @raise [Error] when they do not serve
    def start(name)
      signal = ORDERS.fetch(name).last
      refuse_process_one(signal)
      if waits?(name) && !monitor
        raise Error, "process #{pid} is a master without a monitor, which would know the outcome: set pid or control_path, or add --no-wait"
      end

      sent = order(name)
      puts NO_NEW_CODE if signal == "HUP" && @configuration.preload_app
      $stdout.flush
      puts format("ready in %.1f s", StartWaiting.new(sent, limit(signal), log) { |master| place_of(master) }.await) if waits?(name)
    end

    # Its end is that of its container, and so is that of USR2, which is refused.
    def refuse_process_one(signal)
      return unless signal == "USR2" && (monitor ? monitor.status&.fetch("pid") : pid) == 1

      raise Error, "process 1 starts no new master, as its end is that of its container: replace the container"
    end

    # @param master [Integer] a pid
    # @return [MonitorClient, nil] where that master's monitor is, or one that has taken its place
    def place_of(master) = monitor.path == @path ? monitor : usual(master)&.then { |path| MonitorClient.new(path) }

    # Has the server end.
    #
    # @raise [Error] when it does not
    def stop
      answer = monitor&.status
      masters = answer ? monitor.visible(answer) : [pid]
      seconds = answer ? answer["stop_seconds"] : limit("TERM")
      waiting = StopWaiting.new(masters, seconds, log) { answering? }
      order(:stop)
      puts format("stopped in %.1f s", waiting.await) if waits?(:stop)
    end

    # Whether there is still a monitor. One that is about to end may cut a connection.
    def answering?
      !monitor.status.nil?
    rescue Error
      true
    end

    # Seconds after which the server has also given up; 0: never.
    def limit(signal)
      return @configuration.drain_delay + @configuration.graceful_timeout if signal == "TERM"
      return @configuration.boot_timeout + @configuration.graceful_timeout if signal == "USR2"

      @configuration.worker_boot_timeout * [@configuration.max_workers, 1].max
    end

    # @return [String, nil]
    def log = @configuration.stderr_path

    # @return [Integer]
    # @raise [Error] when there is none
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

  # Finds the server that runs in the current directory, by proc(5): by its master's process title and directory. It takes no file that
  # could name another process, and works in a container, which has a /proc of its own.
  module FolderServer
    # What proc(5) adds to the name of a directory that has been removed. HUP and USR2 go to the one that has the name by now.
    REMOVED = " (deleted)"

    Master = Struct.new(:pid, :parent)

    module_function

    # @return [Integer, nil] the master's pid; nil where none runs here, or where there is no /proc
    # @raise [Error] when there are several
    def pid
      found = masters
      # During USR2 the new master is a child of the old one, which cancels it if it is told to stop.
      found = found.reject { |one| found.any? { |other| other.pid == one.parent } }
      raise Error, "several servers run in #{Dir.pwd} (pids #{found.map(&:pid).sort.join(", ")}): name one by -P, -c or --control" if found.size > 1

      found.first&.pid
    end

    def masters = Dir.glob("/proc/[0-9]*").filter_map { |dir| master(dir) }

    # Another user's process may call itself what it likes: this user's orders are not for it. Root's are also for the server of the user
    # whose folder this is.
    #
    # @param dir [String] of a process in /proc
    # @return [Master, nil]
    def master(dir)
      pid = File.basename(dir).to_i
      return unless MasterTitle.of?(pid)

      status = File.read("#{dir}/status")
      users = status[/^Uid:(.*)/, 1].to_s.split.map(&:to_i).uniq
      Master.new(pid, status[/^PPid:\s*(\d+)/, 1].to_i) if users.one? && trusted.include?(users.first) && here?("#{dir}/cwd")
    rescue SystemCallError
      # It has ended, or is not ours to look at.
      nil
    end

    def trusted = [Process.euid, *(File.stat(".").uid if Process.euid.zero?)]

    # @param link [String] to a process's directory
    def here?(link)
      # A folder may really have that name.
      File.identical?(link, ".") || (File.readlink(link) == "#{Dir.pwd}#{REMOVED}" && !File.identical?(link, "#{Dir.pwd}#{REMOVED}"))
    end
    private_class_method :masters, :master, :trusted, :here?
  end
end
