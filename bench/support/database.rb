# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require_relative "process_tree"

module Bench
  # The PostgreSQL of a workload's app: in a scratch directory, on a unix socket there and on no port, gone when the run is
  # over. It runs in the lane, whose packages it comes from. All rounds of all servers use the same one, and only read.
  class Database
    # Makes the cluster with the rows of bench/apps/database.sql, then becomes the server.
    PROGRAM = File.expand_path("database/serve.rb", __dir__)
    ROWS = File.expand_path("../apps/database.sql", __dir__)
    # Seconds in which it must be ready, and in which it must end.
    START = 120
    STOP = 30
    STEP = 0.02
    private_constant :PROGRAM, :ROWS, :START, :STOP, :STEP

    # @param lane [Lane]
    # @return [Boolean] whether the lane has its programs
    def self.here?(lane)
      system(*lane.command(["ruby", PROGRAM]), out: File::NULL, err: File::NULL)
    end

    # @param lane [Lane]
    # @return [Database] when it takes connections
    # @raise [RunningServer::Failed]
    def self.start(lane)
      database = new(lane)
      database.await_ready
      database
    rescue StandardError, Interrupt
      database&.stop
      raise
    end

    def initialize(lane)
      @dir = Dir.mktmpdir("db", lane.scratch)
      @log = File.join(@dir, "log")
      @pid = Process.spawn(*lane.command(["ruby", PROGRAM, @dir, ROWS]), in: File::NULL, out: [@log, "a"], err: %i[child out], pgroup: true)
    end

    # @return [Hash{String => String}] what its clients have to have in theirs (libpq's variables)
    def environment
      { "PGHOST" => @dir, "PGUSER" => "bench", "PGDATABASE" => "postgres" }
    end

    # @return [Integer] nanoseconds of CPU time until now; only differences mean something
    def cpu_ns = ProcessTree.new([@pid]).cpu_ns

    # @raise [RunningServer::Failed] when it ends, or is not ready in time
    def await_ready
      deadline = now + START
      until ready?
        raise RunningServer::Failed, "PostgreSQL ended at once: #{last_words}" if ended?
        raise RunningServer::Failed, "PostgreSQL was not ready within #{START} s: #{last_words}" if now > deadline

        sleep STEP
      end
    end

    # Asks PostgreSQL to disconnect its clients and to end, and ends it by force when it does not.
    def stop
      signal(:INT)
      deadline = now + STOP
      sleep STEP until ended? || now > deadline
      signal(:QUIT) && Process.wait(@pid) unless @ended
      FileUtils.remove_entry(@dir)
    end

    private

    # As pg_ctl sees it: the last line of its file says what it is at.
    def ready?
      File.read(File.join(@dir, "data/postmaster.pid")).lines.last&.strip == "ready"
    rescue Errno::ENOENT
      false
    end

    def ended?
      @ended ||= Process.wait(@pid, Process::WNOHANG)
    end

    def signal(name)
      Process.kill(name, @pid) unless @ended
    end

    def last_words
      File.read(@log).scrub.lines.map(&:strip).reject(&:empty?).last(4).join(" | ")[0, 600]
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
