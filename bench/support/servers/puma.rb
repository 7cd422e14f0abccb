# frozen_string_literal: true

module Bench
  module Servers
    # puma in cluster mode with its default threads and the app preloaded.
    class Puma
      def name = "puma"

      def serves?(_workload) = true

      # @return [Array<Array<String>>] one program
      def commands(site)
        words = ["ruby", "-S", "puma", "-C", "-", "-e", "production", "-w", site.workers.to_s, "--preload",
                 "-b", site.endpoint.puma, site.ru]
        [site.lane.command(words)]
      end
    end
  end
end
