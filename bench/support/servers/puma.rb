# frozen_string_literal: true

module Bench
  module Servers
    # puma in cluster mode with the app preloaded and one thread in each worker: the others serve one request at a time
    # too, and a hello costs puma less that way than with its five threads.
    class Puma
      def name = "puma"

      def serves?(_workload) = true

      # @return [Array<Array<String>>] one program
      def commands(site)
        words = ["ruby", "-S", "puma", "-C", "-", "-e", "production", "-w", site.workers.to_s, "-t", "1:1", "--preload",
                 "-b", site.endpoint.puma, site.ru]
        [site.lane.command(words)]
      end
    end
  end
end
