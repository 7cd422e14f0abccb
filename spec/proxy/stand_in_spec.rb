# frozen_string_literal: true

RSpec.describe "the proxy: a certificate that no authority of clients has signed", once: "the program knows no Ruby" do
  def server = @server

  def start(config, **keywords)
    @server = Server.ready(ru: HttpApps.ru(:echo), fastrack: true, options: { "Host" => nil, "Port" => nil }, config: "max_workers 1\n#{config}", **keywords)
  end

  # Nobody listens at port 1.
  acme = "bind 'ssl://127.0.0.1:0'\ntls_domains 'app.example'\nacme_folder 'acme'\nacme_server 'https://127.0.0.1:1/dir'\n"

  it "stands in for the first one by ACME: the log says so once, as no warning, and each failure of ACME says so" do
    ca = Edge.authority["ca.pem"]
    start(acme, files: { "ca.pem" => ca }, env: { "SSL_CERT_FILE" => "ca.pem" })
    server.await_log(/proxy: no new certificate of app\.example: .*; trying again in 60 s, clients get one that no authority has signed until then$/)
    path = Dir.glob("#{File.realpath(server.dir)}/acme/*/app.example.pem").first
    said = "fastrack: proxy: until the first certificate by ACME is there, clients get #{path}, which no authority has signed\n"
    expect([server.log.scan(said).size, server.log[/.*expire.*/]]).to eq([1, nil])
    expect(Edge.curl(server, host: "app.example").last).to be_success
    # The next start finds it in its folder.
    server.signal(:USR2)
    server.await_ready(2)
    expect([server.log.scan(said).size, server.log[/.*expire.*/]]).to eq([2, nil])
  end

  { "development" => " INFO fastrack: the certificate of 127.0.0.1 is by this user's own authority; to trust it, add ",
    "production" => " WARN fastrack: the certificate of 127.0.0.1 is by this user's own authority, which no client trusts: name cert and key, or tls_domains; " \
                    "to trust it, add " }.each do |environment, line|
    it "is by this user's own authority: the log says so in #{environment}" do
      start("bind 'ssl://127.0.0.1:0'\n", environment: environment, env: { "XDG_DATA_HOME" => "data" })
      expect(server.whole_log.lines.grep(/own authority/)).to match([include(line)])
    end
  end
end
