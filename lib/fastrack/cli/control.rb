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
  # The commands for a running server. A command asks the monitor by the unix socket. Without a monitor an order is a signal to a process
  # that is known to be a master: by its pid file, or by its title and directory. Where nothing names the server, the command finds the
  # server that runs in the current directory.
  class Control
    # Requests to the monitor, and the signals with the same effect.
    ORDERS = {
      reload: ["/phased-restart", "HUP"], restart: ["/restart", "USR2"], refork: ["/refork", "URG"], stop: ["/stop", "TERM"],
      more: ["/workers/+1", "TTIN"], less: ["/workers/-1", "TTOU"]
    }.freeze

    # Seconds between two checks with --watch, and between the two checks of a rate.
    WATCH_INTERVAL = 1
    RATE_INTERVAL = 0.5

    # Orders that start processes. Their outcome is waited for.
    STARTS = %i[reload restart refork].freeze

    # Rails' pid file.
    USUAL_PID = "tmp/pids/server.pid"

    # @param arguments [Arguments]
    # @param options [Hash] see Configuration
    # @param overrides [Hash] see Configuration
    # @raise [Error]
    def initialize(arguments, options, overrides)
      @arguments = arguments
      silent = StringIO.new
      given = overrides.slice(:Pid, :ControlPath).select { |_, path| path }.transform_values { |path| Text.expand(path) }
      # Whoever names the server by its files need not stand in its folder, where another server's ConfigFile may be.
      options = { **options, command: { **options[:command].to_h, no_config: true } } if given.any? && !options[:ConfigFile]
      configuration = Configuration.new(options, overrides: overrides.merge(given), output: silent, warnings: silent)
      enter(configuration.working_directory)
      # Whether the configuration names a server. The server of the current directory may be another one.
      @configuration = configuration
      @path = configuration.control&.path
      @pid_file = configuration.pid || (USUAL_PID if File.file?(USUAL_PID))
      @named = !(@path || configuration.pid).nil?
      @path ||= "#{@pid_file.delete_suffix(".pid")}.control" if @pid_file && configuration.control_path != false
    end

    # @return [Integer] the exit status: 0 if the server runs and serves
    # @raise [Error]
    def run
      case @arguments.action
      when :status then status
      when :stats then stats
      when :workers then change_workers(@arguments.change)
      when *STARTS then start(@arguments.action)
      when :stop then stop
      when :profile then return profile
      end
      %i[status stats].include?(@arguments.action) && !@serves ? 1 : 0
    rescue Interrupt
      0
    end

    private

    # Relative paths of the server start in this directory.
    def enter(directory)
      Dir.chdir(directory) if directory
    rescue SystemCallError => e
      raise Error, "cannot enter #{directory} (WorkingDirectory): #{SafeFile.reason(e)}"
    end

    # @return [MonitorClient, nil] client of the server's monitor; nil without a monitor
    # @raise [Error] when no server is found
    def monitor
      @monitor ||= answering(@path) || successor(answering(usual(pid)))
    end

    # After USR2 an old master that finishes its requests is still found, and passes no order on.
    #
    # @param client [MonitorClient, nil] client of a master's monitor
    # @return [MonitorClient, nil] client of the new master's monitor, if that master stops; else the same client
    def successor(client)
      found = client&.status
      other = found["other_master"] if found && found["phase"] == "stopping"
      (other && answering(usual(other))) || client
    end

    # @param path [String, nil]
    # @return [MonitorClient, nil]
    def answering(path) = path && MonitorClient.new(path).then { |client| client if client.status }

    # @param master [Integer] a pid
    # @return [String, nil] the default socket of that master's monitor
    def usual(master)
      DefaultControlSocket.of(master)
    rescue SystemCallError
      nil
    end

    # @return [Hash] content of /status.json
    # @raise [Error]
    def look
      found = monitor&.status
      # The monitor of a new master may have another socket.
      found ||= (@monitor = nil) || monitor&.status
      raise Error, "process #{pid} is a master without a monitor, so its state is unknown: set pid or control_path" unless found

      @serves = found["serves"]
      found
    end

    def status
      before = look
      return puts(JSON.pretty_generate(before)) if @arguments.json? && !@arguments.watch?

      table = StatusTable.new
      pause = RATE_INTERVAL
      loop do
        sleep(pause)
        now = look
        puts @arguments.json? ? JSON.generate(now) : table.text(before, now, clear: @arguments.watch?)
        break unless @arguments.watch?

        before = now
        pause = WATCH_INTERVAL
      end
    end

    def stats
      require_relative "../puma/stats"
      puts JSON.generate(PumaStats.of_status(look))
    end

    # @return [Integer] the exit status
    def profile
      require_relative "profile"
      ProfileCommand.new(monitor, look["workers"], @arguments.worker, @arguments.seconds, @arguments.gvl?).run
    end

    # Changes the number by one at a time, because pending signals of a kind count as one.
    def change_workers(change)
      change.abs.times do |index|
        before = look["workers_wanted"] unless change.abs == 1
        order(change.positive? ? :more : :less)
        next if index == change.abs - 1

        50.times { look["workers_wanted"] == before ? sleep(0.1) : break }
      end
    end

    # @return [Hash, nil] see MonitorClient#order; nil if the order was sent as a signal
    def order(name)
      target, signal = ORDERS.fetch(name)
      sent = monitor&.order(target)
      # The pid is looked up once, because a server that stops cannot be found again.
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

    # Makes new workers or a new master start.
    #
    # @raise [Error] when the new processes do not serve
    def start(name)
      signal = ORDERS.fetch(name).last
      refuse_process_one(signal)
      if waits?(name) && !monitor
        raise Error, "process #{pid} is a master without a monitor, so the outcome is unknown: set pid or control_path, or add --no-wait"
      end

      sent = order(name)
      $stdout.flush
      puts format("ready in %.1f s", StartWaiting.new(sent, limit(signal), log) { |master| place_of(master) }.await) if waits?(name)
    end

    # Refuses a restart of process 1, because its end would be the end of its container.
    def refuse_process_one(signal)
      return unless signal == "USR2" && (monitor ? monitor.status&.fetch("pid") : pid) == 1

      raise Error, "process 1 starts no new master, because its end would end the container: replace the container"
    end

    # @param master [Integer] a pid
    # @return [MonitorClient, nil] client of that master's monitor, or of the monitor that has taken over the socket
    def place_of(master) = monitor.path == @path ? monitor : usual(master)&.then { |path| MonitorClient.new(path) }

    # Makes the server end.
    #
    # @raise [Error] when the server does not end
    def stop
      answer = monitor&.status
      masters = answer ? monitor.visible(answer) : [pid]
      seconds = answer ? answer["stop_seconds"] : limit("TERM")
      waiting = StopWaiting.new(masters, seconds, log) { answering? }
      order(:stop)
      puts format("stopped in %.1f s", waiting.await) if waits?(:stop)
    end

    # Whether the monitor still answers. A monitor that is about to end may cut a connection.
    def answering?
      !monitor.status.nil?
    rescue Error
      true
    end

    # Seconds after which the server itself gives up; 0: never.
    def limit(signal)
      return @configuration.drain_delay + @configuration.graceful_timeout if signal == "TERM"
      return @configuration.boot_timeout + @configuration.graceful_timeout if signal == "USR2"

      @configuration.worker_boot_timeout * (@configuration.max_workers + 1)
    end

    # @return [String, nil]
    def log = @configuration.stderr_path

    # @return [Integer]
    # @raise [Error] when no server is found
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

  # Finds the server that runs in the current directory, by the process titles and directories in proc(5). No file is read that could name
  # another process. Works in a container, which has a /proc of its own.
  module FolderServer
    # Suffix in proc(5) of a removed directory. After HUP or USR2 the server would enter the new directory with the name.
    REMOVED = " (deleted)"

    Master = Struct.new(:pid, :parent)

    module_function

    # @return [Integer, nil] the master's pid; nil if none runs here, or without /proc
    # @raise [Error] when several servers run here
    def pid
      found = masters
      # During USR2 the new master is a child of the old one. The old master, when it is told to stop, also stops a new one that boots.
      found = found.reject { |one| found.any? { |other| other.pid == one.parent } }
      raise Error, "several servers run in #{Dir.pwd} (pids #{found.map(&:pid).sort.join(", ")}): name one by -P, -c or --control" if found.size > 1

      found.first&.pid
    end

    def masters = Dir.glob("/proc/[0-9]*").filter_map { |dir| master(dir) }

    # Only processes of trusted users count, because any process may set such a title. Trusted are this user and, for root, the owner of the
    # current directory.
    #
    # @param dir [String] folder of a process in /proc
    # @return [Master, nil]
    def master(dir)
      pid = File.basename(dir).to_i
      return unless MasterTitle.of?(pid)

      users = ProcStat.users(pid).uniq
      Master.new(pid, ProcStat.status(pid)["PPid"].to_i) if users.one? && trusted.include?(users.first) && here?("#{dir}/cwd")
    rescue SystemCallError
      # The process has ended, or is not readable for this user.
      nil
    end

    def trusted = [Process.euid, *(File.stat(".").uid if Process.euid.zero?)]

    # @param link [String] to a process's directory
    def here?(link)
      # A directory may really have a name with that suffix.
      File.identical?(link, ".") || (File.readlink(link) == "#{Dir.pwd}#{REMOVED}" && !File.identical?(link, "#{Dir.pwd}#{REMOVED}"))
    end
    private_class_method :masters, :master, :trusted, :here?
  end
end
