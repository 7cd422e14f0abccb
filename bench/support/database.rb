# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require_relative "running_server"

module Bench
  # The PostgreSQL of a workload's app: in a scratch directory, on a unix socket there and on no port, gone when the run is
  # over. It runs in the lane, whose packages it comes from. All rounds of all servers use the same one, and add no rows.
  class Database < Program
    # Makes the cluster with the rows of bench/apps/database.sql, then becomes the server.
    PROGRAM = File.expand_path("database/serve.rb", __dir__)
    ROWS = File.expand_path("../apps/database.sql", __dir__)
    private_constant :PROGRAM, :ROWS

    # @return [Database] when it takes connections
    def self.start(lane)
      database = new(lane)
      database.await_ready { database.ready? }
      database
    rescue StandardError, Interrupt
      database&.stop
      raise
    end

    def initialize(lane)
      @dir = Dir.mktmpdir("db", lane.scratch)
      super("postgresql", lane.command(["ruby", PROGRAM, @dir, ROWS]), @dir)
    end

    # @return [Hash{String => String}] what its clients have to have in theirs (libpq's variables)
    def environment
      { "PGHOST" => @dir, "PGUSER" => "bench", "PGDATABASE" => "postgres" }
    end

    # @return [Integer] nanoseconds of CPU time until now; only differences mean something
    def cpu_ns = tree.cpu_ns

    # As pg_ctl sees it: the last line of its file says what it is at.
    def ready?
      File.read(File.join(@dir, "data/postmaster.pid")).lines.last&.strip == "ready"
    rescue Errno::ENOENT
      false
    end

    # It disconnects its clients.
    def stop
      super(:INT)
      FileUtils.remove_entry(@dir)
    end
  end
end
