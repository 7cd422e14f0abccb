# frozen_string_literal: true

module Bench
  module Servers
    # unicorn, with the app preloaded: its memory is least then.
    class Unicorn
      def name = "unicorn"

      # It closes each connection, which its clients can but take.
      def serves?(workload) = workload.close? || workload.servers.include?(name)

      # @return [Array<Array<String>>] one program
      def commands(site)
        config = site.write("unicorn.rb", <<~RUBY)
          worker_processes #{site.workers}
          preload_app true
          listen #{site.endpoint.to_s.dump}
        RUBY
        [site.command(["ruby", "-S", "unicorn", "-E", "none", "-c", config, site.ru])]
      end
    end
  end
end
