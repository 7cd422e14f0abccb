# frozen_string_literal: true

require "rbconfig"
require "tmpdir"
require_relative "../error"
require_relative "../memory/limit"
require_relative "../process/proc_stat"
require_relative "load"
require_relative "other_load"

module Fastrack
  module Tune
    # One boot of the app under load, in a server of its own on a free port of the loopback interface.
    class Trial
      COMMAND = File.expand_path("../../../exe/fastrack", __dir__)

      # Workers that are measured: what two share shows only beside each other.
      WORKERS = 2

      # The part of the time that passes before it counts, and the least seconds of it.
      WARM_UP = 0.3

      # What the environment must not bring in.
      CLEAN = %w[WEB_CONCURRENCY RAILS_MAX_THREADS PORT SERVER_STARTER_PORT LISTEN_FDS LISTEN_PID NOTIFY_SOCKET].to_h { |name| [name, nil] }.freeze

      # Bytes: `shared` is the master's, with what workers share; a worker's own at `start`, when `warm`, and `loaded`. Seconds
      # of one request: `cpu`, `waiting`. `growth`: bytes of a worker per 1000 requests. `answers`: see Load, also of the paths in
      # `left_out`, which have failed. `others`: CPUs that other processes have taken meanwhile.
      Result = Struct.new(:shared, :start, :warm, :loaded, :growth, :requests, :failures, :cpu, :waiting, :answers, :left_out, :others,
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
        Dir.mktmpdir("fastrack-tune") do |dir|
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
        @workers = ProcStat.children(@pid).keys
      end

      # The app may take two minutes to boot.
      #
      # @return [Integer]
      def await_port
        deadline = now + 120
        until log.include?("Fastrack is ready")
          raise Error, "the app does not boot:\n#{log}" if Process.wait(@pid, Process::WNOHANG)&.then { @pid = nil } || !@pid || now > deadline

          sleep(0.05)
        end
        Integer(log[/^Fastrack starts Listening on 127\.0\.0\.1:(\d+)/, 1])
      end

      def log = File.read(@log)

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
          # What has failed has its share in all of these figures: they are taken again without it.
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
        # What was not found, or was not allowed, the log does not know. It begins with a reason, which is that of all requests.
        explains = @answers.values.flat_map(&:keys).any? { |status| status.nil? || status >= 500 }
        ["the app answers no request with a status below 400:", *lines, *(log.lines.first(30).join if explains)].join("\n")
      end

      def result(load, start, warm, (cpu, queued), others)
        requests = load.requests
        loaded = own
        waiting = load.mean - ((cpu + queued) / requests) - Load::OWN_TIME
        Result.new(shared: total - loaded.sum, start: start.max, warm: warm.max, loaded: loaded.max,
                   growth: (loaded.sum - warm.sum) * 1000 / requests, requests: requests, failures: load.failures,
                   cpu: cpu / requests, waiting: [waiting, 0].max, answers: @answers, left_out: @answers.keys - @paths, others: others.cpus)
      end

      def own = @workers.map { |pid| memory(pid).private }

      def total = [@pid, *@workers].sum { |pid| memory(pid).pss }

      def memory(pid)
        ProcessMemory.of(pid) || raise(Error, "the memory of process #{pid} cannot be looked at: has it ended, or is it another user's?\n#{log}")
      end

      # Seconds in which the workers have computed, and in which they could have.
      def clocks
        cpu = @workers.sum { |pid| ProcStat.cpu_seconds(pid) }
        [cpu, @workers.sum { |pid| ProcStat.queued_seconds(pid) }]
      rescue SystemCallError
        raise Error, "a worker has ended under load:\n#{log}"
      end

      # It may take ten seconds to end.
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
