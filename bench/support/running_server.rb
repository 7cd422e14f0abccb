# frozen_string_literal: true

require_relative "client"
require_relative "process_tree"

module Bench
  # A program that runs for a measurement, with everything that descends from it.
  class Program
    # It did not start, or answered wrongly; the message says what it wrote.
    class Failed < StandardError; end

    # Seconds in which it must be ready, and in which it must end.
    BOOT = 120
    STOP = 10
    # Seconds between two looks at whether it has started or ended.
    STEP = 0.02
    # Variables that would change a server's settings.
    CLEAN = %w[PORT WEB_CONCURRENCY RACK_ENV RACK_HANDLER RAILS_ENV RUBYOPT SERVER_STARTER_PORT LISTEN_FDS NOTIFY_SOCKET]
            .to_h { |name| [name, nil] }.freeze
    # Descriptors that a process of it may have open, where the machine's own limit allows it: a server is not to be judged
    # by the shell that bench/run was started from.
    DESCRIPTORS = [65_536, Process.getrlimit(:NOFILE).last].min
    private_constant :BOOT, :STOP, :STEP, :DESCRIPTORS

    # @return [ProcessTree] all of its processes
    attr_reader :tree

    # @param dir [String] where it runs, and where its log is
    def initialize(name, words, dir)
      @name = name
      @log = File.join(dir, "#{name}.log")
      @pid = Process.spawn(CLEAN, *words, chdir: dir, in: File::NULL, out: [@log, "a"], err: %i[child out], pgroup: true,
                                          rlimit_nofile: [DESCRIPTORS, Process.getrlimit(:NOFILE).last])
      @tree = ProcessTree.new([@pid])
    rescue SystemCallError => error
      raise Failed, "#{name} cannot be started: #{error.message}"
    end

    # @param step [Float] seconds between two looks
    # @raise [Failed] when it ends, or is not ready in time
    def await_ready(step: STEP)
      Bench.await(BOOT, step: step) { yield || (ended? && raise(Failed, "#{@name} ended at once: #{last_words}")) } or
        raise Failed, "#{@name} was not ready within #{BOOT} s: #{last_words}"
    end

    # Asks it to end, and ends by force what has not.
    def stop(name = :TERM)
      left = tree.pids
      signal(name, [@pid])
      Bench.await(STOP, step: STEP) { (left = alive(left)).empty? }
      signal(:KILL, left)
      reap(0)
    end

    private

    # @return [Integer, nil] nil while it runs
    def reap(flags) = @ended ||= Process.wait(@pid, flags)

    def ended? = reap(Process::WNOHANG)

    def alive(pids)
      ended?
      pids.select { |pid| ProcessTree.alive?(pid) }
    end

    def signal(name, pids)
      pids.each do |pid|
        Process.kill(name, pid)
      rescue Errno::ESRCH
        nil
      end
    end

    # Its last lines, without those of a Ruby backtrace.
    def last_words
      lines = File.exist?(@log) ? File.read(@log).scrub.lines.map(&:strip) : []
      told = lines.reject { |line| line.empty? || line.start_with?("from ") }
      told.empty? ? "it wrote nothing" : told.last(4).join(" | ")[0, 600]
    end
  end

  # A server of a workload.
  class RunningServer < Program
    # Starts `server`, yields when it answers as it should, and ends it whatever happens.
    #
    # @param server [#name, #command] see Servers
    # @param how [Hash] see Program#await_ready
    def self.run(server, site, **how)
      running = new(server.name, server.command(site), site.dir)
      running.await_ready(**how) { running.answers?(site) }
      yield running
    ensure
      running&.stop
    end

    # @raise [Failed] when it answers wrongly
    def answers?(site)
      workload = site.workload
      status, body = Client.ask(site.endpoint, workload.request)
      return true if status == 200 && workload.app.right?(workload.request, body)

      raise Failed, "#{@name} answers #{status} and #{body.bytesize} bytes, which is wrong: #{last_words}"
    rescue Errno::ECONNREFUSED, Errno::ENOENT, Errno::ECONNRESET
      false
    end
  end
end
