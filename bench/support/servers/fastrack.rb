# frozen_string_literal: true

module Bench
  module Servers
    # Fastrack of this checkout, as its users start it. No worker is recycled, as with the other servers.
    class Fastrack
      LIB = File.expand_path("../../../lib", __dir__)
      private_constant :LIB

      attr_reader :name

      # @param options [Array<String>] more of rackup's -O
      # @param threads [Boolean] with as many threads in each worker as the workload says
      def initialize(name, *options, threads: false)
        @name = name
        @options = options
        @threads = threads
      end

      def serves?(_workload) = true

      # @return [Array<Array<String>>] one program
      def commands(site)
        options = [*place(site.endpoint), "MaxWorkers=#{site.workers}", "MaxRequestPerChild=0", *@options]
        options << "MaxThreads=#{site.workload.threads}" if @threads
        words = ["ruby", "-I", LIB, "-S", "rackup", "-s", "Fastrack", "-E", "none"]
        [site.command(words + options.flat_map { |option| ["-O", option] } + [site.ru])]
      end

      private

      def place(endpoint)
        case endpoint
        when Endpoint::Tcp then ["Host=#{Endpoint::HOST}", "Port=#{endpoint.port}"]
        when Endpoint::Unix then ["Path=#{endpoint.path}"]
        end
      end
    end
  end
end
