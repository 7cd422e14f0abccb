# frozen_string_literal: true

require "rbconfig"
require "tmpdir"
require_relative "../error"
require_relative "../memory/limit"
require_relative "../process/proc_stat"
require_relative "../rack/temporary_folder"
require_relative "../text"
require_relative "load"
require_relative "other_load"

module Fastrack
  module Tune
    # Boots the app in a server of its own, on a free port of the loopback interface, and loads it.
    class Trial
      COMMAND = File.expand_path("../../../exe/fastrack", __dir__)

      # Workers of the server. With a single worker the kernel could not tell its own memory from shared memory.
      WORKERS = 2

      # Time of the warm-up, as a share of the measured time. It lasts at least a second.
      WARM_UP = 0.3

      # Variables of the environment that would change the server.
      CLEAN = %w[WEB_CONCURRENCY RAILS_MAX_THREADS PORT SERVER_STARTER_PORT LISTEN_FDS LISTEN_PID NOTIFY_SOCKET].to_h { |name| [name, nil] }.freeze

      # Figures of the trial:
      #
      # - `shared`: bytes of the master, and those that workers share.
      # - `start`, `warm`, `loaded`: bytes of the largest worker's own, after the boot, the warm-up and the load.
      # - `growth`: bytes that a worker grows by in 1,000 requests.
      # - `requests`, `failures`: answers below status 400, and all others. `rate`: requests per second.
      # - `cpu`, `waiting`: seconds of one request.
      # - `answers`: see Load; also those of the paths in `left_out`, which have failed.
      # - `others`: CPUs that other processes have taken meanwhile.
      Result = Struct.new(:shared, :start, :warm, :loaded, :growth, :requests, :failures, :rate, :cpu, :waiting, :answers, :left_out, :others,
                          keyword_init: true)

      def initialize(app_file:, config:, environment:, paths:, seconds:, threads:)
        @app_file = app_file
        @config = config
        @environment = environment
        @paths = paths
        @seconds = seconds
        @threads = threads
        @answers = {}
      end

      # @return [Result]
      # @raise [Error] when the app does not boot, or does not answer
      def run
        Dir.mktmpdir("fastrack-tune", TemporaryFolder.path) do |dir|
          boot(dir)
          measure
        ensure
          stop
        end
      end

      private

      def boot(dir)
        @log = File.join(dir, "log")
        # Another server may run by the same ConfigFile.
        apart = { StdoutPath: @log, StderrPath: @log, LogFormat: "plain", AccessLog: File::NULL, ControlPath: "none" }
        settings = { **apart, MaxRequestPerChild: 0, MaxMemory: 0, MaxMemoryPerChild: 0, MaxThreads: @threads }
        options = settings.flat_map { |name, value| ["-O", "#{name}=#{value}"] }
        options.push("-c", @config) if @config
        @pid = Process.spawn(CLEAN, RbConfig.ruby, COMMAND, "-e", @environment, "-b", "127.0.0.1:0", "-w", WORKERS.to_s, "-P", "#{dir}/pid",
                             *options, *@app_file, in: File::NULL, %i[out err] => @log, pgroup: true)
        @port = await_port
        # The others are generation 0.
        @workers, @others = ProcStat.children(@pid).keys.partition { |pid| File.binread("/proc/#{pid}/cmdline").start_with?("fastrack worker") }
      end

      # Waits up to two minutes for the app to boot.
      #
      # @return [Integer] the server's port
      def await_port
        deadline = now + 120
        until log.include?("Fastrack is ready")
          raise Error, "the app does not boot:\n#{log}" if Process.wait(@pid, Process::WNOHANG)&.then { @pid = nil } || !@pid || now > deadline

          sleep(0.05)
        end
        Integer(log[/^Fastrack starts Listening on 127\.0\.0\.1:(\d+)/, 1])
      end

      def log = Text.utf8(File.binread(@log)).scrub

      def measure
        start = own
        load([@seconds * WARM_UP, 1].max)
        loop do
          paths = @paths
          warm = own
          others = OtherLoad.new
          before = clocks
          load = load(@seconds)
          after = clocks
          # Failed requests have their share in all of these figures. The figures are taken again without their paths.
          return result(load, start, warm, after.zip(before).map { |now, then_| now - then_ }, others) if @paths == paths
        end
      end

      # Leaves paths out that have failed.
      #
      # @raise [Error] when none is left
      def load(seconds)
        Load.new(@port, @paths, clients: WORKERS * @threads, seconds: seconds).tap do |load|
          load.answers.each { |path, statuses| (@answers[path] ||= {}).merge!(statuses) { |_, one, other| one + other } }
          @paths -= load.failing
          raise Error, nothing_left if @paths.empty? || load.requests.zero?
        end
      end

      def nothing_left
        lines = @answers.map { |path, statuses| "  #{Load.describe(path, statuses)}" }
        # The log tells nothing of statuses below 500. Its first lines name the reason of the first failure, and all may have the same.
        explains = @answers.values.flat_map(&:keys).any? { |status| status.nil? || status >= 500 }
        ["the app answers no request with a status below 400:", *lines, *(log.lines.first(30).join if explains)].join("\n")
      end

      def result(load, start, warm, (cpu, queued), others)
        requests = load.requests
        loaded = own
        waiting = load.mean - ((cpu + queued) / requests) - Load::OWN_TIME
        Result.new(shared: total - loaded.sum, start: start.max, warm: warm.max, loaded: loaded.max,
                   growth: (loaded.sum - warm.sum) * 1000 / requests, requests: requests, failures: load.failures, rate: requests / @seconds,
                   cpu: cpu / requests, waiting: [waiting, 0].max, answers: @answers, left_out: @answers.keys - @paths, others: others.cpus)
      end

      def own = @workers.map { |pid| memory(pid).private }

      def total = [@pid, *@others, *@workers].sum { |pid| memory(pid).pss }

      def memory(pid)
        ProcessMemory.of(pid) || raise(Error, "the memory of process #{pid} cannot be looked at: has it ended, or is it another user's?\n#{log}")
      end

      # @return [Array(Float, Float)] seconds that the workers have computed, and that they have waited for a CPU
      def clocks
        cpu = @workers.sum { |pid| ProcStat.cpu_seconds(pid) }
        [cpu, @workers.sum { |pid| ProcStat.queued_seconds(pid) }]
      rescue SystemCallError
        raise Error, "a worker has ended under load:\n#{log}"
      end

      # Ends the server, by force after ten seconds.
      def stop
        return unless @pid

        Process.kill(:TERM, @pid)
        deadline = now + 10
        sleep(0.05) until (ended = Process.wait(@pid, Process::WNOHANG)) || now > deadline
        return if ended

        Process.kill(:KILL, -@pid)
        Process.wait(@pid)
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
