# frozen_string_literal: true

require "rbconfig"
require_relative "endpoint"
require_relative "lane"
require_relative "process_tree"

module Bench
  # A Fastrack server for commands that watch one for longer than a measurement of bench/run takes: bench/leak, bench/auto.
  class WatchedServer
    # It did not start, or end; the message says what it wrote.
    class Failed < StandardError; end

    # A lane's root has none of the machine's /sys, where the server finds the limit of its cgroup. Version 1, or 2.
    SEES_CGROUPS = ["sh", "-c", <<~'SH', "sh"].freeze
      if grep -q '^[0-9]*:memory:' /proc/self/cgroup; then
        mkdir -p /sys/fs/cgroup/memory && mount -t cgroup -o memory memory /sys/fs/cgroup/memory
      else
        mkdir -p /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup
      fi
      exec "$@"
    SH
    private_constant :SEES_CGROUPS

    # Seconds for a boot, and for an end.
    PATIENCE = 120

    # @return [Endpoint::Tcp]
    attr_reader :endpoint

    # @param dir [String] for its log
    # @param app [String] a config.ru
    # @param lane [Lane]
    # @param options [Array<String>] for `fastrack`
    # @param environment [Hash{String => String}]
    # @param wrapper [Array<String>] what to put before the command
    def initialize(dir, app, lane:, options: [], environment: {}, wrapper: [])
      # Apps may say much on stdout.
      @out, @log = %w[out log].map { |name| File.join(dir, name) }
      # A lane has an environment of its own.
      words = [*(SEES_CGROUPS unless lane.name == "system"), "env", *environment.map { |pair| pair.join("=") }, lane.name == "system" ? RbConfig.ruby : "ruby", File.join(Lane::ROOT, "exe/fastrack"),
               "-e", "production", "-b", "127.0.0.1:0", *options, app]
      @pid = spawn({ "WEB_CONCURRENCY" => nil, "PORT" => nil }, *wrapper, *lane.command(words), in: File::NULL, out: @out, err: @log, chdir: Lane::ROOT)
      await_ready
      @endpoint = Endpoint::Tcp.new(@said[/Listening on 127\.0\.0\.1:(\d+)/, 1].to_i)
    end

    # @return [String] what it has written to stderr
    def log = File.binread(@log).force_encoding("UTF-8").scrub

    # @param name [Symbol] for the master
    def signal(name) = Process.kill(name, master)

    # @return [Integer] how many there are
    def workers = ProcessTree.new([master]).pids.size - 1

    # Ends it, and waits until it is gone.
    #
    # @return [Float] seconds of CPU that all of its processes have used
    def stop
      return 0 unless @pid

      before = cpu
      signal(:TERM)
      Process.wait(@pid)
      @pid = nil
      cpu - before
    end

    # @raise [Failed]
    def await(what)
      (PATIENCE * 20).times { yield ? (return true) : sleep(0.05) }
      raise Failed, "#{what}: not within #{PATIENCE} s\n#{log}"
    end

    private

    def await_ready
      await("the start") do
        @said = File.binread(@out)
        next true if @said.include?("Fastrack is ready")

        if Process.wait(@pid, Process::WNOHANG)
          @pid = nil
          raise Failed, log
        end
      end
    rescue Failed
      stop
      raise
    end

    # A lane's shell may stand before it.
    def master = @said[/^Fastrack is ready .*Pid:(\d+)/, 1]&.to_i || @pid

    # Of all that have been waited for.
    def cpu = Process.times.then { |times| times.cutime + times.cstime }
  end
end
