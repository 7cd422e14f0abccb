# frozen_string_literal: true

require_relative "machine"

module Bench
  # nginx without an app: it sends a short answer from its configuration, a long one from a file by sendfile(2).
  class Nginx
    # Bytes that the configuration has room for.
    SHORT = 1_000
    private_constant :SHORT

    def name = "nginx"

    def serves?(workload) = workload.servers.include?(name)

    # @param site [Site] whose endpoint nginx listens on
    def command(site)
      config = site.write("nginx.conf", config(site))
      [Machine.nginx || name, "-p", site.dir, "-c", config, "-e", File.join(site.dir, "nginx.error.log")]
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
          keepalive_requests 1000000000;
          #{%w[client_body proxy fastcgi uwsgi scgi].map { |name| "#{name}_temp_path #{name};" }.join(" ")}
          #{upstream}
          server {
            listen #{site.endpoint.nginx};
            root #{site.dir};
            location / { #{location(site)} }
          }
        }
      NGINX
    end

    def upstream = nil

    def location(site)
      body = site.workload.app.body(site.workload.request)
      site.write("answer", body)
      body.bytesize < SHORT ? "return 200 #{body.dump};" : "try_files /answer =404;"
    end
  end

  # nginx in front of a server, as Rhebok's and unicorn's users run them: it keeps its clients' connections and makes a
  # new one to the server for each request. Its CPU time counts for nobody.
  class Front < Nginx
    # @param server [Endpoint::Unix] where the server listens
    def initialize(server)
      @server = server
    end

    private

    def upstream = "upstream app { server #{@server.nginx} max_fails=0; }"

    def location(_site)
      "proxy_pass http://app; proxy_set_header Host $http_host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;"
    end
  end
end
