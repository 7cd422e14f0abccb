# frozen_string_literal: true

require_relative "client"
require_relative "process_tree"

module Bench
  # A server that has been started for one measurement, with everything that descends from it.
  class RunningServer
    # The server did not start, or answered wrongly; the message says what it wrote.
    class Failed < StandardError; end

    # Seconds in which it must answer, and in which it must end.
    BOOT = 120
    STOP = 10
    # Seconds between two looks at whether it has started or ended.
    STEP = 0.02
    # Variables that would change a server's settings.
    CLEAN = %w[PORT WEB_CONCURRENCY RACK_ENV RACK_HANDLER RAILS_ENV RUBYOPT SERVER_STARTER_PORT LISTEN_FDS]
            .to_h { |name| [name, nil] }.freeze
    # Descriptors that a process of it may have open, where the machine's own limit allows it: a server is not to be judged
    # by the shell that bench/run was started from.
    DESCRIPTORS = [65_536, Process.getrlimit(:NOFILE).last].min
    private_constant :BOOT, :STOP, :STEP, :CLEAN, :DESCRIPTORS

    # Starts `server`, yields when it answers as it should, and ends it whatever happens.
    #
    # @param server [#name, #commands] see Servers
    # @param site [Site]
    # @yieldparam running [RunningServer]
    # @raise [Failed]
    def self.run(server, site)
      running = new(server, site)
      running.await_answer
      yield running
    ensure
      running&.stop
    end

    # @return [ProcessTree] all of its processes
    attr_reader :tree

    def initialize(server, site)
      @name = server.name
      @site = site
      @log = File.join(site.dir, "#{server.name}.log")
      @pids = []
      server.commands(site).each { |words| @pids << start(words) }
      @tree = ProcessTree.new(@pids)
    end

    # @raise [Failed] when it ends, answers wrongly or does not answer in time
    def await_answer
      deadline = now + BOOT
      until answers?
        raise Failed, "#{@name} ended at once: #{last_words}" if ended?
        raise Failed, "#{@name} did not listen within #{BOOT} s: #{last_words}" if now > deadline

        sleep STEP
      end
    end

    # Asks it to end, and ends by force what has not.
    def stop
      left = tree.pids | @pids
      signal(:TERM, @pids)
      deadline = now + STOP
      sleep STEP until (left = alive(left)).empty? || now > deadline
      signal(:KILL, left)
      @pids.each { |pid| reap(pid, 0) }
    end

    private

    def start(words)
      Process.spawn(CLEAN, *words, chdir: @site.dir, in: File::NULL, out: [@log, "a"], err: %i[child out], pgroup: true,
                                   rlimit_nofile: [DESCRIPTORS, Process.getrlimit(:NOFILE).last])
    rescue SystemCallError => error
      raise Failed, "#{@name} cannot be started: #{error.message}"
    end

    # Every endpoint, because each of thin's processes has its own.
    def answers?
      workload = @site.workload
      request = workload.request
      @site.endpoints.all? do |endpoint|
        status, body = Client.ask(endpoint, request)
        next true if status == 200 && workload.app.right?(request, body)

        raise Failed, "#{@name} answers #{status} and #{body.bytesize} bytes, which is wrong: #{last_words}"
      end
    rescue Errno::ECONNREFUSED, Errno::ENOENT, Errno::ECONNRESET
      false
    end

    def ended? = @pids.any? { |pid| reap(pid, Process::WNOHANG) }

    # @return [Integer, nil] nil while it runs; its pid, or 0 when it was reaped before
    def reap(pid, flags)
      Process.wait(pid, flags)
    rescue Errno::ECHILD
      0
    end

    def alive(pids)
      @pids.each { |pid| reap(pid, Process::WNOHANG) }
      pids.select { |pid| ProcessTree.alive?(pid) }
    end

    def signal(name, pids)
      pids.each do |pid|
        Process.kill(name, pid)
      rescue Errno::ESRCH
        nil
      end
    end

    # The server's last lines, without those of a Ruby backtrace.
    def last_words
      lines = File.exist?(@log) ? File.read(@log).scrub.lines.map(&:strip) : []
      told = lines.reject { |line| line.empty? || line.start_with?("from ") }
      told.empty? ? "it wrote nothing" : told.last(4).join(" | ")[0, 600]
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
