# frozen_string_literal: true

require "json"

RSpec.describe "the proxy: certificates by ACME", once: "what the program does, whatever the Ruby" do
  def server = @server

  # Pebble, which is Let's Encrypt's authority for tests, and the DNS that it asks. It looks for the proofs at the ports of the block's server.
  def authority(port, validity: 7_776_000, **settings)
    @dir ||= Dir.mktmpdir("fastrack-acme")
    Edge.authority.merge("pebble.json" => JSON.generate(pebble: { listenAddress: "127.0.0.1:#{port + 2}", managementListenAddress: "127.0.0.1:#{port + 3}",
                                                                   certificate: "server.pem", privateKey: "server.key", tlsPort: port, httpPort: port + 1,
                                                                   certificateValidityPeriod: validity, **settings }))
        .each { |name, text| File.write(File.join(@dir, name), text) }
    names = ["pebble-challtestsrv", "-defaultIPv4", "127.0.0.1", "-defaultIPv6", "", "-dns01", "127.0.0.1:#{port + 4}", "-http01", "", "-https01", "", "-tlsalpn01", "",
             "-management", "127.0.0.1:#{port + 5}"]
    run(*names)
    run("pebble", "-config", "pebble.json", "-dnsserver", "127.0.0.1:#{port + 4}")
    eventually(20, -> { Dir.glob(File.join(@dir, "*.log")).map { |log| File.read(log) }.join }) { listens?(port + 2) }
    "https://127.0.0.1:#{port + 2}/dir"
  end

  def listens?(port) 
    TCPSocket.new("127.0.0.1", port).close.nil?
  rescue Errno::ECONNREFUSED
    false
  end

  def run(*command)
    log = File.join(@dir, "#{command.first}.log")
    (@pids ||= []) << spawn({ "PEBBLE_VA_NOSLEEP" => "1", "PEBBLE_WFE_NONCEREJECT" => "0" }, *command, chdir: @dir, in: File::NULL, out: log, err: log)
  end

  def start(port, url, config = "")
    Server.ready(ru: HttpApps.ru(:echo), fastrack: true, options: { "Host" => nil, "Port" => nil }, env: { "SSL_CERT_FILE" => File.join(@dir, "ca.pem") },
                 config: <<~RUBY)
                   listen "127.0.0.1:#{port + 1}"
                   bind "ssl://127.0.0.1:#{port}"
                   force_ssl true
                   max_workers 1
                   tls_domains "app.example", "www.app.example"
                   acme_server "#{url}"
                   acme_folder "acme"
                   acme_contact "ops@app.example"
                   #{config}
                 RUBY
  end

  def certificate = Edge.connect(server, host: "app.example").tap(&:close).peer_cert
  def await_certificate = eventually(60, -> { server.log }) { certificate.then { |one| one if one.issuer.to_s.include?("Pebble") } }

  before { skip "no pebble" unless %w[pebble pebble-challtestsrv].all? { |name| ENV.fetch("PATH").split(":").any? { |dir| File.executable?(File.join(dir, name)) } } }

  after do
    @pids&.each { |pid| Process.kill(:TERM, pid) && Process.wait(pid) }
    FileUtils.rm_rf(@dir) if @dir
  end

  it "one is ordered, used, kept for the next start, and renewed" do
    FreePort.keep(6) do |port|
      @server = start(port, authority(port, validity: 30))
      first = await_certificate
      expect(first.extensions.find { |one| one.oid == "subjectAltName" }.value.split(", ")).to contain_exactly("DNS:app.example", "DNS:www.app.example")
      modes = ["acme", *Dir.glob("acme/**/*", base: server.dir).sort].map { |name| File.stat(server.file(name)).mode & 0o777 }
      # The folder, the authority's one, the account, the key and the certificate.
      expect([modes, server.log]).to match([[0o700, 0o700, 0o600, 0o600, 0o644], include("proxy: new certificate of app.example, www.app.example")])
      expect(Edge.curl(server, host: "app.example").last).to be_success
      server.signal(:USR2)
      server.await_ready(2)
      kept = certificate.serial
      # On a machine that is slow it may be due already.
      due = first.not_before + ((first.not_after - first.not_before) / 3 * 2)
      expect(kept).to eq(first.serial) if Time.now < due
      eventually(60, -> { server.log }) { certificate.serial != first.serial }
    end
  end

  it "another one is ordered at once when a domain is added, or another authority is named" do
    FreePort.keep(6) do |port|
      @server = start(port, authority(port))
      first = await_certificate
      change = ->(from, to) { File.write(server.file("fastrack.rb"), File.read(server.file("fastrack.rb")).sub(from, to)) && server.signal(:HUP) }
      change.call('"www.app.example"', '"www.app.example", "new.app.example"')
      second = eventually(60, -> { server.log }) { certificate.then { |one| one if one.to_text.include?("new.app.example") } }
      # The same authority by another name.
      change.call("https://127.0.0.1", "https://localhost")
      third = eventually(60, -> { server.log }) { certificate.then { |one| one if one.serial != second.serial && one.issuer.to_s.include?("Pebble") } }
      expect([first, second, third].map(&:serial).uniq.size).to eq(3)
    end
  end

  it "the proof is HTTP-01 where the port of TLS cannot be reached, also with force_ssl" do
    FreePort.keep(7) do |port|
      # The authority asks for TLS where nobody listens.
      @server = start(port, authority(port, tlsPort: port + 6))
      await_certificate
      expect(server.log).to match(/proxy: no new certificate of app\.example, www\.app\.example: .*; trying the other kind of proof/)
    end
  end

  it "the old one is used on while no other comes, and an authority that has lost the account gets a new one" do
    FreePort.keep(6) do |port|
      @server = start(port, authority(port, validity: 20))
      first = await_certificate
      @pids.each { |pid| Process.kill(:TERM, pid) && Process.wait(pid) }
      @pids.clear
      server.await_log(/proxy: no new certificate of .*, with the old one until then/)
      expect([certificate.serial, Edge.curl(server, host: "app.example").last.success?]).to eq([first.serial, true])
      # It knows no account when it comes back.
      authority(port)
      File.write(server.file("fastrack.rb"), File.read(server.file("fastrack.rb")).sub("ops@", "other@"))
      server.signal(:HUP)
      second = eventually(60, -> { server.log }) { certificate.then { |one| one if one.serial != first.serial } }
      expect([second.issuer.to_s, Dir.glob("acme/*/account.json", base: server.dir).size]).to match([/Pebble/, 1])
    end
  end

  it "where the authority does not answer, the server serves all the same, and the log says so" do
    FreePort.keep(2) do |port|
      @dir = Dir.mktmpdir("fastrack-acme")
      File.write(File.join(@dir, "ca.pem"), Edge.authority["ca.pem"])
      @server = start(port, "https://127.0.0.1:1/dir")
      server.await_log(/proxy: no new certificate of app\.example, www\.app\.example: .*trying again in 60 s/)
      expect(Edge.curl(server, host: "app.example").last).to be_success
    end
  end

  it "an account elsewhere is named to an authority that wants one" do
    FreePort.keep(6) do |port|
      key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"
      url = authority(port, externalAccountBindingRequired: true, externalAccountMACKeys: { "kid-1" => key })
      @server = start(port, url, "acme_account \"kid-1:#{key}\"")
      await_certificate
    end
  end
end
