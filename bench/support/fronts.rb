# frozen_string_literal: true

require "openssl"
require_relative "endpoint"
require_relative "lane"
require_relative "machine"
require_relative "running_server"
require_relative "site"

module Bench
  # Servers that do TLS for an app, all with the same certificate: the proxy, nginx and Caddy before Fastrack's unix socket, and Puma.
  class TlsFront
    WORKERS = 2
    # Bytes of the files that are asked for.
    FILES = { "10k" => 10_000, "100k" => 100_000, "10m" => 10_000_000 }.freeze
    APP = <<~'RUBY'
      random = Random.new(1)
      words = Array.new(800) { Array.new(random.rand(2..9)) { random.rand(97..122).chr }.join }
      page = Array.new(1_100) { |number| "<li class=\"item\"><a href=\"/items/#{number}\">#{Array.new(6) { words.sample(random: random) }.join(" ")}</a></li>\n" }.join
      run ->(env) { [200, { "content-type" => "text/html" }, [env["PATH_INFO"] == "/page" ? page[0, 100_000] : "Hello, world\n"]] }
    RUBY
    NAMES = %w[fastrack nginx caddy puma].freeze
    PUMA_THREADS = "1:1"

    attr_reader :name, :port

    # @param dir [String] with what .prepare has written
    # @param lane [Lane] of the servers of apps; the others are this machine's
    def initialize(name, dir, lane)
      @name = name
      @dir = dir
      @lane = lane
      @port = Endpoint.free_tcp.port
      @programs = public_send(name)
      @programs.each { |program| program.await_ready { answers? } if program == @programs.last }
    end

    # Writes a certificate (ECDSA P-256), files and an app.
    def self.prepare(dir)
      key = OpenSSL::PKey::EC.generate("prime256v1")
      certificate = OpenSSL::X509::Certificate.new
      certificate.version, certificate.serial, certificate.public_key = 2, OpenSSL::BN.rand(64), key
      certificate.subject = certificate.issuer = OpenSSL::X509::Name.new([%w[CN localhost]])
      certificate.not_before, certificate.not_after = Time.now - 3600, Time.now + (86_400 * 60)
      certificate.add_extension(OpenSSL::X509::ExtensionFactory.new(certificate, certificate).create_extension("subjectAltName", "DNS:localhost,IP:127.0.0.1"))
      certificate.sign(key, "SHA256")
      FileUtils.mkdir_p("#{dir}/public/files")
      Site.proxy(dir)
      { "cert.pem" => certificate.to_pem, "key.pem" => key.to_pem, "config.ru" => self::APP }.each { |name, text| File.write("#{dir}/#{name}", text) }
      self::FILES.each { |name, size| File.binwrite("#{dir}/public/files/#{name}.bin", Random.bytes(size)) }
    end

    def stop = @programs.reverse_each(&:stop)

    def cpu_ns = trees.sum(&:cpu_ns)

    # @return [Integer] pid of Fastrack's proxy
    def proxy = trees.first.titled("fastrack proxy").first

    def connect(context, session = nil)
      tls = OpenSSL::SSL::SSLSocket.new(TCPSocket.new("127.0.0.1", @port), context)
      tls.sync_close = true
      tls.session = session if session
      tls.connect
    end

    def ask(tls)
      tls.write("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
      tls.readpartial(16_384)
    end

    def fastrack = [ruby(*fastrack_words, "-b", "ssl://127.0.0.1:#{port}?cert=#{@dir}/cert.pem&key=#{@dir}/key.pem", "-O", "PublicFiles=#{@dir}/public", *fastrack_files)]

    def nginx = [behind, program(Machine.nginx, "-p", @dir, "-c", write("nginx.conf", <<~NGINX), "-e", "#{@dir}/nginx.error.log")]
      daemon off;
      #{"user root;" if Process.uid.zero?}
      worker_processes #{WORKERS};
      pid #{@dir}/nginx.pid;
      worker_rlimit_nofile 65536;
      events { worker_connections 16384; }
      http {
        access_log off;
        sendfile on;
        tcp_nopush on;
        keepalive_requests 1000000000;
        #{%w[client_body proxy fastcgi uwsgi scgi].map { |name| "#{name}_temp_path #{@dir}/#{name};" }.join(" ")}
        gzip on; gzip_proxied any; gzip_comp_level 5;
        upstream app { server unix:#{@dir}/nginx.sock; keepalive 64; keepalive_requests 1000000000; }
        server {
          listen 127.0.0.1:#{port} ssl http2 backlog=4096;
          ssl_certificate #{@dir}/cert.pem;
          ssl_certificate_key #{@dir}/key.pem;
          ssl_protocols TLSv1.2 TLSv1.3;
          location /files/ { root #{@dir}/public; #{nginx_files} }
          location / {
            proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header X-Forwarded-Proto $scheme;
          }
        }
      }
    NGINX

    def caddy = [behind, program("env", "HOME=#{@dir}", "caddy", "run", "--adapter", "caddyfile", "--config", write("Caddyfile", <<~CADDY))]
      {
        admin off
        auto_https off
        default_bind 127.0.0.1
      }
      https://:#{port} {
        tls #{@dir}/cert.pem #{@dir}/key.pem
        encode zstd gzip
        handle /files/* {
          root * #{@dir}/public
          #{caddy_files}
        }
        reverse_proxy unix/#{@dir}/caddy.sock
      }
    CADDY

    def puma = [puma_at("ssl://127.0.0.1:#{port}?cert=#{@dir}/cert.pem&key=#{@dir}/key.pem")]

    private

    # Words about files.
    def fastrack_files = []
    def nginx_files = ""
    def caddy_files = "file_server"

    def puma_at(address)
      ruby("-S", "puma", "-C", write("puma.rb", ""), "-e", "production", "-w", WORKERS.to_s, "-t", self.class::PUMA_THREADS, "--preload", "-b", address, "#{@dir}/config.ru")
    end

    def fastrack_words = ["-I", "#{@dir}/lib", "#{Lane::ROOT}/exe/fastrack", "-w", WORKERS.to_s, "-t", "1", "-e", "production", "-O", "MaxRequestPerChild=0", "#{@dir}/config.ru"]

    def behind = app_at("unix://#{socket}").tap { |server| server.await_ready { File.socket?(socket) } }

    def app_at(address) = ruby(*fastrack_words, "-b", address)

    def socket = "#{@dir}/#{name}.sock"

    def ruby(*words) = program(*@lane.command(["ruby", *words]))

    def program(*words) = Program.new(name, words, @dir)

    def write(name, text) = "#{@dir}/#{name}".tap { |path| File.write(path, text) }

    def trees = @programs.map(&:tree)

    def answers?
      tls = connect(OpenSSL::SSL::SSLContext.new)
      ask(tls).include?(" 200 ")
    rescue SystemCallError, OpenSSL::SSL::SSLError, EOFError
      false
    ensure
      tls&.close
    end
  end
end
