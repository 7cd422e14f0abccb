# frozen_string_literal: true

module Bench
  module Servers
    # thin has no workers: as its own cluster mode does, each process gets a port or a socket of its own.
    class Thin
      def name = "thin"

      def serves?(_workload) = true

      # @return [Array<Array<String>>] as many programs as there would be workers
      def commands(site)
        site.several_endpoints(site.workers).map.with_index do |endpoint, number|
          words = ["ruby", "-S", "thin", "start", "-e", "none", "-R", site.ru, *place(endpoint),
                   "-P", File.join(site.dir, "thin.#{number}.pid")]
          site.command(words)
        end
      end

      private

      def place(endpoint)
        case endpoint
        when Endpoint::Tcp then ["-a", Endpoint::HOST, "-p", endpoint.port.to_s]
        when Endpoint::Unix then ["-S", endpoint.path]
        end
      end
    end
  end
end
