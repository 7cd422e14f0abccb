# frozen_string_literal: true

require "open3"
require "openssl"

# Certificates and clients for the specs of the proxy.
module Edge
  module_function

  # A certificate of its own authority, and its key.
  #
  # @param days [Integer] until its end; negative: it has expired
  # @return [Hash{String => String}] texts by the names of files
  # @param issuer [Array, nil] certificate and key of an authority; nil: it is one itself
  # @param version [Integer] of the certificate: 1 has no names
  def files(name = "a", hosts: %w[localhost], days: 30, issuer: nil, version: 3)
    key = OpenSSL::PKey::EC.generate("prime256v1")
    certificate = OpenSSL::X509::Certificate.new
    certificate.version = version - 1
    certificate.serial = OpenSSL::BN.rand(64)
    certificate.subject = OpenSSL::X509::Name.new([%w[CN fastrack-spec], ["O", name]])
    certificate.issuer = issuer ? issuer.first.subject : certificate.subject
    certificate.public_key = key
    certificate.not_before = Time.now - (86_400 * 60)
    certificate.not_after = Time.now + (86_400 * days)
    add_names(certificate, hosts, authority: issuer.nil?) if version == 3
    certificate.sign(issuer ? issuer.last : key, "SHA256")
    { "#{name}.pem" => certificate.to_pem, "#{name}.key" => key.to_pem }
  end

  def add_names(certificate, hosts, authority:)
    extensions = OpenSSL::X509::ExtensionFactory.new(certificate, certificate)
    names = [*hosts.map { |host| "DNS:#{host}" }, "IP:127.0.0.1"].join(",")
    certificate.add_extension(extensions.create_extension("subjectAltName", names))
    certificate.add_extension(extensions.create_extension("basicConstraints", "CA:#{authority.to_s.upcase}", true))
  end

  # An authority, and a certificate by it for a server on this machine.
  #
  # @return [Hash{String => String}] texts by the names of files
  def authority
    made = files("ca").transform_values(&:itself)
    ca, ca_key = OpenSSL::X509::Certificate.new(made["ca.pem"]), OpenSSL::PKey.read(made["ca.key"])
    own = files("server", hosts: %w[localhost], issuer: [ca, ca_key])
    made.merge(own)
  end

  # Starts a server with TLS, and returns when it serves.
  #
  # @param config [String] further lines of the ConfigFile
  # @param parameters [String] further parameters of the address
  def start(ru: HttpApps.ru(:echo), config: "", parameters: "", files: {}, **keywords)
    text = "bind \"ssl://127.0.0.1:0?cert=a.pem&key=a.key#{parameters}\"\nmax_workers 1\nmax_request_per_child 0\n#{config}"
    Server.ready(ru: ru, fastrack: true, config: text, files: self.files.merge(files), options: { "Host" => nil, "Port" => nil }, **keywords)
  end

  # Replaces files of a server's folder, each as a whole.
  def replace(server, files)
    files.each { |name, text| File.rename(server.write("#{name}.new", text), server.file(name)) }
  end

  # A TLS connection.
  #
  # @param alpn [Array<String>, nil]
  # @param session [OpenSSL::SSL::Session, nil] to resume
  def connect(server, host: "localhost", alpn: nil, session: nil, version: nil)
    context = OpenSSL::SSL::SSLContext.new
    context.verify_mode = OpenSSL::SSL::VERIFY_NONE
    context.alpn_protocols = alpn if alpn
    context.min_version = context.max_version = version if version
    context.session_cache_mode = OpenSSL::SSL::SSLContext::SESSION_CACHE_CLIENT
    yield context if block_given?
    tls = OpenSSL::SSL::SSLSocket.new(server.connect, context)
    tls.hostname = host
    tls.session = session if session
    tls.connect
    tls.sync_close = true
    tls
  end

  # Sends a request and reads one response with a Content-Length.
  def ask(tls, path = "/", *fields, verb: "GET")
    tls.write("#{[["#{verb} #{path} HTTP/1.1"], ["Host: localhost"], *fields].join("\r\n")}\r\n\r\n")
    head = tls.gets("\r\n\r\n").to_s
    [head, tls.read(head[/^content-length: (\d+)/i, 1].to_i)]
  end

  # Ends a request whose first line was sent, and reads the response's status.
  def ask_rest(tls)
    tls.write("Host: localhost\r\n\r\n")
    head = tls.gets("\r\n\r\n").to_s
    tls.read(head[/^content-length: (\d+)/i, 1].to_i)
    head[/ (\d{3})/, 1].to_i
  end

  # Output of curl, and whether it succeeded.
  def curl(server, *options, path: "/", host: "localhost", scheme: "https")
    url = "#{scheme}://#{host}:#{server.port}#{path}"
    Open3.capture2e("curl", "-sSk", "--max-time", "30", "--resolve", "#{host}:#{server.port}:127.0.0.1", *options, url, binmode: true)
  end

  # The env that HttpApps::Echo has seen.
  def env(server, *options, path: "/", **keywords)
    text, status = curl(server, *options, path: path, **keywords)
    raise Server::Failed, "curl: #{text}\n#{server.log}" unless status.success?

    Marshal.load(text).fetch("env") # rubocop:disable Security/MarshalLoad -- written by HttpApps::Echo
  end

  # The proxy's pid.
  def proxy(server)
    Eventually.eventually(Server::DEADLINE) { ProcessTable.children(server.master).find { |pid| ProcessTable.title(pid).start_with?("fastrack proxy") } }
  end
end
