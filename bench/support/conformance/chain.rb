# frozen_string_literal: true

require "rbconfig"
require_relative "../endpoint"
require_relative "../running_server"

module Conformance
  ROOT = File.expand_path("../../..", __dir__)
  APP = File.join(__dir__, "app.ru")

  FASTRACK = [RbConfig.ruby, "#{ROOT}/exe/fastrack", "-w", "1", "-t", "1", "-e", "none", APP].freeze

  # Commands of servers that listen on back.sock in a folder.
  BACKS = {
    "fastrack" => [*FASTRACK, "-b", "unix://DIR/back.sock"],
    "puma" => ["puma", "-t", "1:1", "-e", "none", "-b", "unix://DIR/back.sock", APP],
    "unicorn" => ["unicorn", "-E", "none", "-l", "DIR/back.sock", APP]
  }.freeze

  # With its own proxy, which has the clients of ports only.
  PROXY = { "proxy" => [*FASTRACK, "-b", "tcp://PORT", "-O", "H2C"] }.freeze

  # Configurations and commands of proxies from front.sock to back.sock, with kept connections.
  FRONTS = {
    "none" => nil,
    "nginx" => [<<~NGINX, %w[nginx -p DIR -c DIR/front.conf -e DIR/front.log]],
      daemon off; user root; worker_processes 1; pid DIR/nginx.pid; events {}
      http {
        access_log off; client_body_temp_path DIR/b; proxy_temp_path DIR/p; fastcgi_temp_path DIR/f; uwsgi_temp_path DIR/u; scgi_temp_path DIR/s;
        upstream back { server unix:DIR/back.sock; keepalive 4; }
        server {
          listen unix:DIR/front.sock;
          location / { proxy_pass http://back; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $http_host; }
        }
      }
    NGINX
    "haproxy" => [<<~HAPROXY, %w[haproxy -f DIR/front.conf]],
      defaults
        mode http
        timeout connect 5s
        timeout client 5s
        timeout server 5s
      frontend front
        bind unix@DIR/front.sock mode 777
        default_backend back
      backend back
        http-reuse always
        server back unix@DIR/back.sock
    HAPROXY
    "caddy" => [<<~CADDY, %w[caddy run --config DIR/front.conf --adapter caddyfile]],
      {
        admin off
        auto_https off
      }
      http:// {
        bind unix/DIR/front.sock
        reverse_proxy unix/DIR/back.sock
      }
    CADDY
    "varnish" => [%(vcl 4.1;\nbackend default { .path = "DIR/back.sock"; }\nsub vcl_recv { return (pass); }\n),
                  %w[varnishd -F -j none -f DIR/front.conf -a DIR/front.sock -n DIR/varnish -s malloc,16m]]
  }.freeze

  # A server, with or without a proxy, that is asked case by case. `seen`: what the app has understood of each request.
  class Chain
    # Seconds without a byte after which nothing more comes.
    QUIET = 0.25

    Outcome = Struct.new(:statuses, :seen) do
      def kind = statuses.any? { |status| status == :closed || status >= 400 } ? :refused : (seen.empty? ? :waits : :taken)
      def to_s = [*statuses, "#{seen.size} seen"].join(" ")
    end

    def self.run(dir, back, front)
      config, words = FRONTS.fetch(front)
      File.write("#{dir}/front.conf", config.gsub("DIR", dir)) if config
      port = Bench::Endpoint.free_tcp
      programs = []
      chain = { "back" => BACKS.merge(PROXY).fetch(back), "front" => words }.compact.map do |name, command|
        command = command.map { |word| word.gsub("DIR", dir).sub("PORT", port.to_s) }
        programs << Bench::Program.new(name, ["env", "SEEN=#{dir}/seen", *command], dir)
        one = new(dir, back == "proxy" ? port : Bench::Endpoint::Unix.new("#{dir}/#{name}.sock"))
        programs.last.await_ready { one.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").statuses == [200] }
        one
      end.last
      yield chain
    ensure
      programs&.reverse_each(&:stop)
    end

    def initialize(dir, endpoint)
      @endpoint = endpoint
      @seen = File.open("#{dir}/seen", "a+b")
    end

    def ask(bytes)
      answer, closed = exchange(@endpoint.connect, bytes)
      statuses = answer.scan(%r{HTTP/1\.[01] (\d{3})}).flatten.map(&:to_i) - [100]
      Outcome.new(closed && statuses.empty? ? [:closed] : statuses, @seen.readlines(chomp: true))
    rescue Errno::ECONNREFUSED, Errno::ENOENT
      Outcome.new([], [])
    end

    private

    def exchange(socket, bytes)
      answer = +"".b
      socket.write(bytes)
      answer << socket.readpartial(65_536) while socket.wait_readable(QUIET)
      [answer, false]
    rescue EOFError, SystemCallError
      [answer, true]
    ensure
      socket.close
    end
  end
end
