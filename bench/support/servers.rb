# frozen_string_literal: true

require_relative "endpoint"
require_relative "nginx"
require_relative "site"

module Bench
  # The servers that bench/run knows how to start, each as its users start it, with the app preloaded. No worker is recycled.
  module Servers
    # A server of Rack apps.
    class Server
      attr_reader :name

      # @param keeps [Boolean] whether it keeps connections. One that closes each runs only workloads that close them, or that ask for it
      # @yieldreturn [Array<String>] the program and its arguments
      def initialize(name, keeps: true, &words)
        @name = name
        @keeps = keeps
        @words = words
      end

      def serves?(workload) = @keeps || workload.close? || workload.servers.include?(name)

      def command(site) = site.command(@words.call(site))
    end

    ROOT = File.expand_path("../..", __dir__)
    CLOSING = "enable_keep_alives false\n"
    private_constant :ROOT, :CLOSING

    # @param options [Array<String>] of the command's -O
    # @param threads [Boolean] with as many threads in each worker as the workload says
    # @param proxied [Boolean] with its proxy in front, without TLS
    # @param root [String] its checkout: this one, or an earlier version
    def self.fastrack(name, *options, threads: false, proxied: false, root: ROOT)
      Server.new(name) do |site|
        place = site.endpoint.is_a?(Endpoint::Tcp) ? ["Host=#{Endpoint::HOST}", "Port=#{site.endpoint.port}"] : ["Path=#{site.endpoint.path}"]
        place << "MaxThreads=#{site.workload.threads}" if threads
        all = [*place, "MaxWorkers=#{site.workers}", "MaxRequestPerChild=0", *options]
        path = proxied ? ["-I", Site.proxy(site.dir)] : []
        ["ruby", "-I", "#{root}/lib", *path, "#{root}/exe/fastrack", "--no-config", "-e", "none", *all.flat_map { |option| ["-O", option] }, site.ru]
      end
    end

    # puma in cluster mode. It has one thread in each worker beside servers that serve one request at a time: a hello costs puma less
    # that way than with its five threads.
    #
    # @param threads [Integer, nil] in each worker; nil: as many as the workload says
    # @param config [String] lines of a config/puma.rb
    def self.puma(name, threads, config = "")
      Server.new(name) do |site|
        count = threads || site.workload.threads
        ["ruby", "-S", "puma", "-C", site.write("puma.rb", config), "-e", "production", "-w", site.workers.to_s, "-t", "#{count}:#{count}", "--preload",
         "-b", site.endpoint.puma, site.ru]
      end
    end

    BUILT_IN = [
      fastrack("fastrack"), fastrack("fastrack-oobgc", "OobGC"), fastrack("fastrack-oobgc-auto", "OobGC=auto"),
      fastrack("fastrack-max-queue-time", "MaxQueueTime=1"),
      fastrack("fastrack-proxied", "Compress", proxied: true),
      # A connection stays with the worker that accepted it.
      fastrack("fastrack-pinned", "HandOver=false"),
      Nginx.new, puma("puma", 1),
      Server.new("unicorn", keeps: false) do |site|
        config = site.write("unicorn.rb", "worker_processes #{site.workers}\npreload_app true\nlisten #{site.endpoint.to_s.dump}\n")
        ["ruby", "-S", "unicorn", "-E", "none", "-c", config, site.ru]
      end,
      # Beside each other only.
      fastrack("fastrack-threads", threads: true), puma("puma-threads", nil),
      # As Heroku tells its users to have it; Puma 6.5 and newer know the word.
      puma("puma-closing", 1, CLOSING), puma("puma-threads-closing", nil, CLOSING)
    ].freeze
    NAMES = BUILT_IN.map(&:name).freeze

    # @raise [Options::Invalid] for a name that is none
    def self.named(names)
      names.uniq.map do |name|
        BUILT_IN.find { |server| server.name == name } or
          raise Options::Invalid, "no server #{name}; there are: #{NAMES.join(", ")}"
      end
    end
  end
end
