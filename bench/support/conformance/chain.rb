# frozen_string_literal: true

require "fileutils"
require "rbconfig"
require "socket"

module Conformance
  ROOT = File.expand_path("../../..", __dir__)
  APP = File.join(__dir__, "app.ru")

  # Commands of servers that listen on back.sock in a folder.
  BACKS = {
    "fastrack" => ->(dir) { [RbConfig.ruby, "#{ROOT}/exe/fastrack", "-w", "1", "-t", "1", "-e", "none", "-b", "unix://#{dir}/back.sock", APP] },
    "puma" => ->(dir) { ["puma", "-t", "1:1", "-e", "none", "-b", "unix://#{dir}/back.sock", APP] },
    "unicorn" => ->(dir) { ["unicorn", "-E", "none", "-l", "#{dir}/back.sock", APP] }
  }.freeze

  # With its own proxy, which has the clients of ports only.
  PROXY = { "proxy" => ->(_) { [RbConfig.ruby, "#{ROOT}/exe/fastrack", "-w", "1", "-t", "1", "-e", "none", "-b", "tcp://127.0.0.1:0", "-O", "H2C", APP] } }.freeze

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
      pids = [start(dir, "back", BACKS.merge(PROXY).fetch(back).call(dir))]
      config, words = FRONTS.fetch(front)
      if config
        File.write("#{dir}/front.conf", config.gsub("DIR", dir))
        pids << start(dir, "front", words.map { |word| word.gsub("DIR", dir) })
      end
      yield new(dir, config ? "front" : "back")
    ensure
      pids&.each { |pid| Process.kill(:TERM, pid) && Process.wait(pid) }
    end

    # Returns when the program listens.
    def self.start(dir, name, words)
      pid = spawn({ "RACK_ENV" => nil, "PORT" => nil, "SEEN" => "#{dir}/seen" }, *words, out: "#{dir}/#{name}.log", err: %i[child out])
      sleep 0.05 until place(dir, name) || Process.wait(pid, Process::WNOHANG)
      place(dir, name) ? pid : raise(File.read("#{dir}/#{name}.log"))
    end

    # A unix socket, or else the port that Fastrack's log names.
    def self.place(dir, name)
      path = "#{dir}/#{name}.sock"
      File.socket?(path) ? path : File.read("#{dir}/#{name}.log")[/Listening on 127\.0\.0\.1:(\d+)/, 1]
    end

    def initialize(dir, name)
      @place = self.class.place(dir, name)
      @seen = File.open("#{dir}/seen", "a+b")
      200.times { ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").statuses == [200] ? return : sleep(0.05) }
      raise "no answer in #{dir}"
    end

    # @return [Outcome]
    def ask(bytes)
      answer, closed = exchange(@place.start_with?("/") ? UNIXSocket.new(@place) : TCPSocket.new("127.0.0.1", @place), bytes)
      statuses = answer.scan(%r{HTTP/1\.[01] (\d{3})}).flatten.map(&:to_i) - [100]
      Outcome.new(closed && statuses.empty? ? [:closed] : statuses, @seen.readlines(chomp: true))
    rescue Errno::ECONNREFUSED
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
