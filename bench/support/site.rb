# frozen_string_literal: true

require "fileutils"
require_relative "lane"

module Bench
  # Where one server of one measurement lives: its private directory, and what it is to serve where.
  class Site
    # @return [String] a directory that is removed afterwards; paths in it are short enough for a unix socket
    attr_reader :dir
    attr_reader :workload
    # @return [Integer] how many processes shall serve
    attr_reader :workers
    attr_reader :lane
    # @return [Endpoint::Tcp, Endpoint::Unix] the place to listen
    attr_reader :endpoint

    # @param unix [Boolean] whether to listen on a unix socket
    # @param database [Database, nil] the app's
    def initialize(dir:, workload:, workers:, lane:, unix: workload.nginx?, database: nil)
      @dir = dir
      @workload = workload
      @workers = workers
      @lane = lane
      @database = database
      @endpoint = unix ? Endpoint::Unix.new(File.join(dir, "sock")) : Endpoint.free_tcp
    end

    # @param words [Array<String>] a server of a Rack app, and its arguments
    # @return [Array<String>] the same in the lane, with what the app has to have in its environment. YJIT is on where Ruby has it,
    #   as in most deployments of such apps, unless RUBY_YJIT_ENABLE says otherwise
    def command(words)
      return lane.command(words) unless workload.app.framework?

      more = { "RAILS_ENV" => "production", "APP_ENV" => "production", "RUBY_YJIT_ENABLE" => ENV.fetch("RUBY_YJIT_ENABLE", "1"), "BENCH_DIR" => dir, **@database&.environment.to_h }
      # Nothing of this process's environment comes into a lane's root.
      lane.command(["env", *more.map { |name, value| "#{name}=#{value}" }, *words])
    end

    # @return [String] a folder for Ruby's load path with the proxy's program: it knows no Ruby, and a lane's root has none of its own
    def self.proxy(dir)
      FileUtils.mkdir_p("#{dir}/lib/fastrack")
      FileUtils.cp(Dir["#{Lane::ROOT}/lib/fastrack/{[0-9]*/,}fastrack-proxy"].max_by { |path| File.mtime(path) }, "#{dir}/lib/fastrack/")
      "#{dir}/lib"
    end

    def ru = workload.app.path

    # @return [String] path of a new file in the directory
    def write(name, bytes)
      File.join(dir, name).tap { |path| File.binwrite(path, bytes) }
    end
  end
end
