# frozen_string_literal: true

RSpec.describe "the proxy: a certificate that cannot be used", once: "the program knows no Ruby" do
  def server = @server

  def plain
    text, = Open3.capture2e("curl", "-sS", "-o", File::NULL, "-w", "%{http_code}", "http://127.0.0.1:#{@plain}/")
    text
  end

  def start
    FreePort.keep do |plain|
      FreePort.keep do |tls|
        @plain, @tls = plain, tls
        @config = "bind 'ssl://127.0.0.1:#{tls}?cert=a.pem&key=a.key'\nbind 'tcp://127.0.0.1:#{plain}'\nmax_workers 1\n"
        @server = Server.ready(ru: HttpApps.ru(:echo), fastrack: true, config: @config, files: Edge.files, options: { "Host" => nil, "Port" => nil })
      end
    end
  end

  def tls = Open3.capture2e("curl", "-sSk", "-o", File::NULL, "-w", "%{http_code}", "https://127.0.0.1:#{@tls}/").first

  it "takes no other port down when the proxy is started anew: its own refuses handshakes until the file is right again" do
    start
    expect([plain, tls]).to eq(%w[200 200])
    Edge.replace(server, "a.pem" => "no certificate\n")
    server.await_log("the certificates stay as they are")
    expect(tls).to eq("200")
    Process.kill(:KILL, Edge.proxy(server))
    server.await_log(/no client can connect to 127\.0\.0\.1:#{@tls} until this is repaired: .*a\.pem/)
    eventually { plain == "200" }
    expect(tls).to match(/TLS|SSL|alert|handshake/i)
    Edge.replace(server, Edge.files)
    eventually { tls == "200" }
  end

  it "of an address that HUP adds makes the HUP fail, and everything is as before" do
    start
    server.write("b.pem", "no certificate\n")
    FreePort.keep do |port|
      server.reload("#{@config}bind 'ssl://127.0.0.1:#{port}?cert=b.pem&key=a.key'\n")
      server.await_log(/HUP: the new code is given up: .*b\.pem/)
    end
    expect([plain, tls]).to eq(%w[200 200])
  end
end
