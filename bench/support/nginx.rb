# frozen_string_literal: true

require_relative "programs"

module Bench
  # nginx in front of a server, as Rhebok's and unicorn's users run them: it keeps its clients' connections and makes a
  # new one to the server for each request. Its CPU time counts for nobody.
  class Nginx
    # @param upstreams [Array<Endpoint::Unix>] where the server listens
    # @param program [String] Debian has it in /usr/sbin, which is not in everyone's PATH
    def initialize(upstreams, program: Programs.nginx)
      @upstreams = upstreams
      @program = program
    end

    def name = "nginx"

    # @param site [Site] whose endpoint nginx listens on
    # @return [Array<Array<String>>] one program
    def commands(site)
      config = site.write("nginx.conf", config(site.endpoint))
      [[@program, "-p", site.dir, "-c", config, "-e", File.join(site.dir, "nginx.error.log")]]
    end

    private

    def config(endpoint)
      <<~NGINX
        daemon off;
        #{"user root;" if Process.uid.zero?}
        worker_processes 1;
        pid nginx.pid;
        error_log nginx.error.log error;
        events { worker_connections 1024; }
        http {
          access_log off;
          keepalive_requests 1000000000;
          client_body_temp_path body;
          proxy_temp_path proxy;
          fastcgi_temp_path fastcgi;
          uwsgi_temp_path uwsgi;
          scgi_temp_path scgi;
          upstream app {
            #{@upstreams.map { |upstream| "server #{upstream.nginx} max_fails=0;" }.join("
    ")}
          }
          server {
            listen #{endpoint};
            location / {
              proxy_pass http://app;
              proxy_set_header Host $http_host;
              proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            }
          }
        }
      NGINX
    end
  end
end
