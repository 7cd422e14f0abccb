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

  def subject
    tls = OpenSSL::SSL::SSLSocket.new(TCPSocket.new("127.0.0.1", @tls)).tap(&:connect)
    tls.sync_close = true
    tls.close
    tls.peer_cert.subject.to_s
  end

  def tls = Open3.capture2e("curl", "-sSk", "-o", File::NULL, "-w", "%{http_code}", "https://127.0.0.1:#{@tls}/").first

  it "takes no port down when the proxy is started anew: the one that worked serves on until the file is right again" do
    start
    expect([plain, tls]).to eq(%w[200 200])
    Edge.replace(server, "a.pem" => "no certificate\n")
    server.await_log("the certificates stay as they are")
    expect(tls).to eq("200")
    old = Edge.proxy(server)
    Process.kill(:KILL, old)
    server.await_log("the proxy (pid #{old}) was killed by SIGKILL: starting another one")
    server.await_log("the certificates stay as they are", 2)
    eventually { [plain, tls] == %w[200 200] }
    Edge.replace(server, Edge.files("b").transform_keys { |name| name.sub("b.", "a.") })
    eventually { subject.end_with?("O=b") }
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
