# frozen_string_literal: true

require "fileutils"
require "socket"
require "tmpdir"
require_relative "clients"
require_relative "eventually"

# nginx as a reverse proxy in front of a server, listening on a unix socket in a folder of its own: it needs no port.
class HttpNginx
  DEADLINE = 10

  attr_reader :path

  def initialize(upstream, settings: "", servers: nil, path: nil)
    @dir = Dir.mktmpdir("fastrack-nginx")
    @path = path || File.join(@dir, "nginx.sock")
    File.write(File.join(@dir, "nginx.conf"), configuration(servers || blocks(upstream, settings)))
    @pid = spawn("nginx", "-p", @dir, "-c", "nginx.conf", "-e", log_path, in: File::NULL, out: log_path, err: log_path)
    Eventually.eventually(DEADLINE, -> { "nginx does not listen: #{log}" }) { listening? }
  end

  def connect(&block) = Clients.connected(UNIXSocket.new(@path), &block)

  def log = File.exist?(log_path) ? File.read(log_path) : ""

  def stop
    Process.kill(:QUIT, @pid)
    Eventually.eventually(DEADLINE, "nginx did not end") { Process.wait(@pid, Process::WNOHANG) }
    FileUtils.remove_entry(@dir)
  end

  private

  def log_path = File.join(@dir, "error.log")

  def listening?
    raise "nginx ended: #{log}" if Process.wait(@pid, Process::WNOHANG)

    connect(&:itself)
  rescue Errno::ENOENT, Errno::ECONNREFUSED
    false
  end

  # One process, as whoever runs the specs: it can reach a private socket, and leaves nobody behind.
  def configuration(servers)
    <<~NGINX
      daemon off;
      master_process off;
      pid nginx.pid;
      error_log #{log_path} warn;
      events { worker_connections 512; }
      http {
        access_log off;
        client_body_temp_path body;
        proxy_temp_path proxy;
        fastcgi_temp_path fastcgi;
        uwsgi_temp_path uwsgi;
        scgi_temp_path scgi;
        #{servers}
      }
    NGINX
  end

  def blocks(upstream, settings)
    <<~NGINX
      upstream app { server #{upstream}; }
      server {
        listen unix:#{@path};
        client_max_body_size 100m;
        location / {
          proxy_pass http://app;
          proxy_set_header Host $http_host;
          proxy_set_header X-Forwarded-For 10.1.2.3;
          proxy_set_header X-Forwarded-Proto https;
          #{settings}
        }
      }
    NGINX
  end
end
