# frozen_string_literal: true

RSpec.describe "the proxy: TLS", once: "the program knows no Ruby" do
  def server = @server

  # nil where the server closes the connection, however it does.
  def first_line(tls)
    tls.gets
  rescue OpenSSL::SSL::SSLError, Errno::ECONNRESET
    nil
  end

  context "with one certificate" do
    before(:context) { @server = Edge.start }

    it "clients get HTTP/2 or HTTP/1.1, whichever they ask for" do
      { "--http2" => "2", "--http1.1" => "1.1" }.each do |option, version|
        text, status = Edge.curl(server, option, "-o", File::NULL, "-w", "%{http_code} %{http_version}")
        expect([status.success?, text]).to eq([true, "200 #{version}"])
      end
      expect(Edge.connect(server, alpn: %w[http/1.1]).alpn_protocol).to eq("http/1.1")
      expect(Edge.connect(server).alpn_protocol).to be_nil
    end

    it "TLS 1.2 and 1.3 are spoken, and nothing older" do
      { "1.2" => %w[--tlsv1.2 --tls-max 1.2], "1.3" => %w[--tlsv1.3] }.each_value { |options| expect(Edge.curl(server, *options).last).to be_success }
      expect(Edge.curl(server, "--tlsv1.0", "--tls-max", "1.1").last).not_to be_success
    end

    it "a client that does not speak TLS gets no answer of the app" do
      expect(server.raw("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")).not_to include("HTTP/1.1 200")
    end

    it "the worker does not know the key" do
      key = File.read(server.file("a.key")).lines[1].strip
      maps = server.workers.reject { |pid| pid == Edge.proxy(server) }
      expect(maps.map { |pid| File.binread("/proc/#{pid}/cmdline") + ProcessTable.descriptors(pid).values.join(" ") }.join).not_to include("a.key", key)
    end
  end

  it "HTTP/2 is spoken where it was agreed, and without TLS with h2c only" do
    { "compress true" => false, "h2c true" => true }.each do |word, spoken|
      plain = Server.ready(ru: HttpApps.ru(:echo), fastrack: true, config: "#{word}\nhost '127.0.0.1'\nport 0\nmax_workers 1", options: { "Host" => nil, "Port" => nil })
      expect(Edge.curl(plain, "--http2-prior-knowledge", scheme: "http").last.success?).to be(spoken)
      expect(Edge.curl(plain, "--http1.1", scheme: "http").last).to be_success
    end
    @server = Edge.start
    tls = Edge.connect(server, alpn: %w[http/1.1])
    tls.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
    # As from a worker: a version that HTTP/1.1 does not have.
    expect(first_line(tls)).to match(%r{\AHTTP/1.1 505 })
  end

  it "a client gets the certificate of the host that it names" do
    files = Edge.files("b", hosts: %w[b.example *.b.example])
    @server = Edge.start(parameters: "", files: files, config: "", ru: HttpApps.ru(:echo))
    server.reload(server.lines_of("fastrack.rb").join("\n").sub("cert=a.pem&key=a.key", "cert=a.pem,b.pem&key=a.key,b.key"))
    names = { "localhost" => "a", "b.example" => "b", "www.b.example" => "b", "other.example" => "a" }
    eventually { Edge.connect(server, host: "b.example").peer_cert.subject.to_s.end_with?("O=b") }
    names.each { |host, name| expect(Edge.connect(server, host: host).peer_cert.subject.to_s).to eq("/CN=fastrack-spec/O=#{name}") }
  end

  it "a new certificate is used by itself, and the connections of the old one stay" do
    @server = Edge.start
    old = Edge.connect(server)
    expect(Edge.ask(old).first).to start_with("HTTP/1.1 200")
    Edge.replace(server, Edge.files("c").transform_keys { |name| name.sub("c.", "a.") })
    eventually { Edge.connect(server).peer_cert.subject.to_s.end_with?("O=c") }
    expect(Edge.ask(old).first).to start_with("HTTP/1.1 200")
    expect(server.workers.size).to eq(2)
  end

  it "HUP takes a new certificate, closes no connection, and sessions are resumed afterwards" do
    @server = Edge.start
    proxy = Edge.proxy(server)
    session = nil
    old = Edge.connect(server) { |context| context.session_new_cb = ->((_, one)) { session = one } }
    Edge.ask(old)
    workers = server.workers - [proxy]
    # The proxy looks at files itself: this one is named anew.
    Edge.files("d").each { |name, text| server.write(name, text) }
    server.reload(server.lines_of("fastrack.rb").join("\n").gsub("a.pem&key=a.key", "d.pem&key=d.key"))
    eventually { Edge.connect(server).peer_cert.subject.to_s.end_with?("O=d") }
    server.await_workers(2) { |found| found.include?(proxy) && (found & workers).empty? }
    expect(Edge.ask(old).first).to start_with("HTTP/1.1 200")
    resumed = Edge.connect(server, session: session)
    expect([session.nil?, resumed.session_reused?, Edge.ask(resumed).first[0, 12]]).to eq([false, true, "HTTP/1.1 200"])
  end

  it "a certificate that cannot be used changes nothing, and the log says why" do
    @server = Edge.start
    Edge.replace(server, "a.pem" => "nonsense")
    server.await_log(/proxy: the certificates stay as they are: .*a\.pem has no certificate/)
    expect(Edge.curl(server).last).to be_success
  end

  it "a start with a wrong key, or without a file, fails with the reason" do
    {
      { "a.key" => Edge.files("b")["b.key"] } => "fastrack: the proxy does not start: #{"%s/a.key"} is not the key of the certificate %s/a.pem",
      { "a.pem" => "nonsense" } => "fastrack: the proxy does not start: %s/a.pem has no certificate"
    }.each do |files, line|
      failed = Server.fail_to_start(ru: HttpApps.ru(:echo), fastrack: true, config: "bind 'ssl://127.0.0.1:0?cert=a.pem&key=a.key'",
                                    files: Edge.files.merge(files), options: { "Host" => nil, "Port" => nil })
      expect([failed.status.exitstatus, failed.log]).to match([1, include(line.gsub("%s", File.realpath(failed.dir)))])
    end
  end

  it "a start with what is no file, is too long, or may not be read, in the place of a key fails with the reason" do
    Dir.mktmpdir do |dir|
      File.mkfifo("#{dir}/fifo")
      File.write("#{dir}/long", "-" * ((256 << 10) + 1))
      { "fifo" => "it is no file", "." => "it is no file", "long" => "it is longer than 262144 bytes", "none" => "no such file or directory" }.each do |name, reason|
        failed = Server.fail_to_start(ru: HttpApps.ru(:echo), fastrack: true, config: "bind 'ssl://127.0.0.1:0?cert=a.pem&key=#{dir}/#{name}'",
                                      files: Edge.files, options: { "Host" => nil, "Port" => nil })
        expect([failed.status.exitstatus, failed.log]).to match([1, include("fastrack: the proxy does not start: cannot read #{File.expand_path(name, dir)}: #{reason}\n")])
      end
    end
  end

  it "a start with more files, or larger ones, than the master keeps in memory fails with the reason" do
    names = ->(count) { Array.new(count, "a.pem").join(",").then { |list| "bind 'ssl://127.0.0.1:0?cert=#{list}&key=#{list.gsub(".pem", ".key")}'" } }
    small = Edge.files
    large = small.merge("a.pem" => small["a.pem"] + ("\n" * (200 << 10)))
    { [names.call(90), large] => "a.pem: all certificates and keys have more than 16 MiB\n", [names.call(501), small] => "a.pem: it is one of more than 1000\n" }
      .each do |(config, files), line|
        failed = Server.fail_to_start(ru: HttpApps.ru(:echo), fastrack: true, config: config, files: files, options: { "Host" => nil, "Port" => nil })
        expect([failed.status.exitstatus, failed.log]).to match([1, include(line)])
      end
  end

  it "fastrack check tells a wrong key, an encrypted one, a certificate of version 1, a missing folder, and a certificate that has expired" do
    bind = "bind 'ssl://127.0.0.1:0?cert=a.pem&key=a.key'\n"
    encrypted = OpenSSL::PKey::RSA.new(2048).to_pem(OpenSSL::Cipher.new("aes-256-cbc"), "passphrase")
    {
      [Edge.files, bind] => [0, /^configuration: \d+ workers? at 127\.0\.0\.1:0\nproxy: its files are right$/],
      [Edge.files(days: -1), bind] => [0, /^proxy: the certificate .*a\.pem has expired$/],
      [Edge.files(days: 3), bind] => [0, /^proxy: the certificate .*a\.pem expires in [23] days$/],
      [Edge.files.merge("a.key" => Edge.files["a.key"]), bind] => [1, /a\.key is not the key of the certificate/],
      [Edge.files.merge("a.key" => encrypted), bind] => [1, /a\.key is encrypted with a passphrase, and nobody is asked for it/],
      [Edge.files(version: 1), bind] => [1, /a\.pem is a certificate of version 1, which browsers refuse/],
      [Edge.files, "#{bind}public_files 'missing'"] => [1, /cannot serve files of .*missing: No such file/]
    }.each do |(files, config), (status, line)|
      Dir.mktmpdir do |dir|
        files.merge("fastrack.rb" => config, "config.ru" => "run ->(_) {}").each { |name, text| File.write(File.join(dir, name), text) }
        output, found = Open3.capture2e(*Server::FASTRACK, "check", "-c", "fastrack.rb", chdir: dir)
        expect([found.exitstatus, output]).to match([status, line])
      end
    end
  end

  it "fastrack --tls makes an authority and a certificate that it signs, and says how to trust it" do
    @server = Server.ready(ru: HttpApps.ru(:echo), fastrack: true, arguments: %w[--tls -o 127.0.0.1 -p 0 -w 1], options: { "Host" => nil, "Port" => nil }, environment: "development",
                           env: { "XDG_DATA_HOME" => "data" })
    expect(server.log).to include("* Listening on https://127.0.0.1:#{server.port}\n")
    authority = File.join(File.realpath(server.dir), "data/fastrack/authority.pem")
    expect(server.log).to include("add #{authority} to the system's")
    output, status = Open3.capture2e("curl", "-sS", "--cacert", authority, "-o", File::NULL, "-w", "%{http_code}", "https://localhost:#{server.port}/")
    expect([status.success?, output]).to eq([true, "200"])
    expect([File.stat(server.file("data/fastrack")).mode & 0o777, File.stat(server.file("data/fastrack/authority.key")).mode & 0o777]).to eq([0o700, 0o600])
  end
end
