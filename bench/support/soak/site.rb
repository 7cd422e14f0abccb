# frozen_string_literal: true

require "fileutils"
require "rbconfig"
require "tmpdir"
require_relative "../endpoint"
require_relative "../running_server"

module Soak
  # Where a server under test has its files, and the settings that the seed gives it.
  class Site
    ROOT = File.expand_path("../../..", __dir__)
    APP = File.join(ROOT, "bench/apps/soak.ru")

    # Seconds.
    REQUEST_TIMEOUT = 5
    WORKER_TIMEOUT = 3
    BOOT_TIMEOUT = 4
    GRACEFUL_TIMEOUT = 6

    attr_reader :seed
    # @return [String] the folder
    attr_reader :dir
    attr_reader :port, :socket
    # @return [Integer] how many workers the server has, and threads each of them
    attr_reader :workers, :threads

    # @param keep [String, nil] where to leave the logs
    def initialize(seed, threads: 1, keep: nil)
      @seed = seed
      @threads = threads
      @keep = keep
      @dir = Dir.mktmpdir("fastrack-soak")
      @random = random(0)
      @port = Bench::Endpoint.free_tcp
      @socket = Bench::Endpoint::Unix.new(path("app.sock"))
      draw
      FileUtils.mkdir_p(disk)
      write_config
    end

    # A source of random numbers for one part of the soak alone.
    def random(part)
      Random.new((@seed * 1000) + part)
    end

    # Whether the seed lets masters come and go; otherwise one lives for the whole time.
    def new_masters? = @new_masters

    # Whether the log is a file, and not a pipe.
    def log_file? = @log_file

    def facts
      "#{@workers} workers, #{"#{@threads} threads each, " if @threads > 1}recycled after #{@recycled.zero? ? "no number of" : @recycled} requests, log in a #{@log_file ? "file" : "pipe"}, " \
        "#{"no " unless @new_masters}new masters#{", reforks by itself" if @refork}"
    end

    def path(name) = File.join(@dir, name)

    # The folder for uploads.
    def disk = path("disk")

    def log = path("server.log")

    def command
      [RbConfig.ruby, "-w", "-I", File.join(ROOT, "lib"), File.join(ROOT, "exe/fastrack"), "-E", "none", APP]
    end

    def environment = Bench::Program::CLEAN.merge("TMPDIR" => disk, "SOAK_DIR" => @dir)

    # @param more [String] lines of the ConfigFile that are new
    def write_config(workers: @workers, more: "")
      File.write(path("new.rb"), <<~RUBY)
        listen "#{@port}"
        listen "#{@socket}"
        max_workers #{workers}
        max_threads #{@threads}
        pid "#{path("server.pid")}"
        #{%(stdout_path "#{log}"\nstderr_path "#{log}") if @log_file}
        request_timeout #{REQUEST_TIMEOUT}
        worker_timeout #{WORKER_TIMEOUT}
        worker_boot_timeout #{BOOT_TIMEOUT}
        graceful_timeout #{GRACEFUL_TIMEOUT}
        err_respawn_interval 0.2
        max_request_per_child #{@recycled}
        #{%(min_request_per_child #{@recycled / 2}) if @recycled.positive?}
        refork #{@refork}
        after_fork { SoakApp.hook("after_fork") }
        before_worker_shutdown { SoakApp.hook("before_worker_shutdown") }
        #{more}
      RUBY
      FileUtils.mkdir_p(path("config"))
      File.rename(path("new.rb"), path("config/fastrack.rb"))
    end

    # Calls the block while a file is there that hooks of the app look for.
    def flag(name)
      File.write(path(name), "")
      yield
    ensure
      FileUtils.rm_f(path(name))
    end

    # Calls the block while there is no folder for uploads.
    def without_disk
      File.rename(disk, path("gone"))
      yield
    ensure
      File.rename(path("gone"), disk)
    end

    # Leaves the logs where they were asked for.
    def remove
      FileUtils.mkdir_p(@keep) && FileUtils.cp(Dir[path("*.log*")], @keep) if @keep
      FileUtils.remove_entry(@dir)
    end

    private

    def draw
      @workers = 2 + @random.rand(3)
      @recycled = [0, 40, 400].sample(random: @random)
      @new_masters = @seed.even?
      @log_file = @random.rand < 0.3
      @refork = @random.rand < 0.3
    end
  end
end
