# frozen_string_literal: true

require_relative "../programs"

module Bench
  module Servers
    # nginx itself, which sends the app's answer as a file of its own: what there is to reach with sendfile(2).
    class NginxFiles
      def name = "nginx"

      # It knows no app, so only where what is answered is a file.
      def serves?(workload) = workload.servers.include?(name)

      # @return [Array<Array<String>>] one program
      def commands(site)
        site.write("answer", site.workload.app.body(site.workload.request))
        config = site.write("nginx.conf", config(site))
        [[Programs.nginx, "-p", site.dir, "-c", config, "-e", File.join(site.dir, "nginx.error.log")]]
      end

      private

      # sendfile and tcp_nopush as Debian's nginx.conf has them.
      def config(site)
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
            client_body_temp_path body;
            proxy_temp_path proxy;
            fastcgi_temp_path fastcgi;
            uwsgi_temp_path uwsgi;
            scgi_temp_path scgi;
            server {
              listen #{site.endpoint};
              root #{site.dir};
              location / { try_files /answer =404; }
            }
          }
        NGINX
      end
    end
  end
end
