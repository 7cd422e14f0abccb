# frozen_string_literal: true

require_relative "../programs"

module Bench
  module Servers
    # nginx without an app: it sends a short answer from its configuration, a long one from a file by sendfile(2).
    class NginxAlone
      # Bytes that the configuration has room for.
      SHORT = 1_000

      def name = "nginx"

      def serves?(workload) = workload.servers.include?(name)

      # @return [Array<Array<String>>] one program
      def commands(site)
        body = site.workload.app.body(site.workload.request)
        site.write("answer", body)
        answer = body.bytesize < SHORT ? "return 200 #{body.dump};" : "try_files /answer =404;"
        config = site.write("nginx.conf", config(site, answer))
        [[Programs.nginx, "-p", site.dir, "-c", config, "-e", File.join(site.dir, "nginx.error.log")]]
      end

      private

      # sendfile and tcp_nopush as Debian's nginx.conf has them.
      def config(site, answer)
        <<~NGINX
          daemon off;
          #{"user root;" if Process.uid.zero?}
          worker_processes #{site.workers};
          pid nginx.pid;
          error_log nginx.error.log error;
          events { worker_connections 1024; }
          http {
            access_log off;
            sendfile on;
            tcp_nopush on;
            keepalive_requests 1000000000;
            #{%w[client_body proxy fastcgi uwsgi scgi].map { |name| "#{name}_temp_path #{name};" }.join(" ")}
            server {
              listen #{site.endpoint.nginx};
              root #{site.dir};
              location / { #{answer} }
            }
          }
        NGINX
      end
    end
  end
end
