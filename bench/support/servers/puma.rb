# frozen_string_literal: true

module Bench
  module Servers
    # puma in cluster mode with the app preloaded. It has one thread in each worker beside servers that serve one request at a
    # time, and a hello costs puma less that way than with its five threads.
    class Puma
      attr_reader :name

      # @param threads [Integer, nil] in each worker; nil: as many as the workload says
      # @param config [String] lines of a config/puma.rb
      def initialize(name, threads, config = "")
        @name = name
        @threads = threads
        @config = config
      end

      def serves?(_workload) = true

      # @return [Array<Array<String>>] one program
      def commands(site)
        threads = @threads || site.workload.threads
        words = ["ruby", "-S", "puma", "-C", site.write("puma.rb", @config), "-e", "production", "-w", site.workers.to_s, "-t", "#{threads}:#{threads}", "--preload",
                 "-b", site.endpoint.puma, site.ru]
        [site.command(words)]
      end
    end
  end
end
