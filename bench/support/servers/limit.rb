# frozen_string_literal: true

require_relative "../rust_program"

module Bench
  module Servers
    # The program of bench/limit, which does a request's syscalls and nothing else.
    class Limit
      def name = "limit"

      def serves?(workload) = workload.floor?

      # @return [Array<Array<String>>] one program
      # @raise [RuntimeError] when it cannot be built
      def commands(site)
        workload = site.workload
        words = [RustProgram.path("limit"), *place(site.endpoint), "--workers", site.workers.to_s,
                 "--response", site.write("response", workload.canned_response), *body(workload.request)]
        words << "--keep-alive" unless workload.close?
        [words]
      end

      private

      def place(endpoint)
        case endpoint
        when Endpoint::Tcp then ["--tcp", endpoint.to_s]
        when Endpoint::Unix then ["--unix", endpoint.path]
        end
      end

      # It cannot tell the end of a request with a body but by counting.
      def body(request)
        request.body ? ["--request-bytes", request.to_s(close: true).bytesize.to_s] : []
      end
    end
  end
end
