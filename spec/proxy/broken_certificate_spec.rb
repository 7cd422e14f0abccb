# frozen_string_literal: true

require "support/lone_proxy"

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

  def served?(name)
    subject.end_with?("O=#{name}")
  rescue OpenSSL::SSL::SSLError
    false
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
    eventually { served?("b") }
  end


  it "and has no earlier one leaves its port without handshakes until there is one, and the other ports serve" do
    port = TCPServer.new("127.0.0.1", 0)
    Dir.mktmpdir do |dir|
      pair = %w[a.pem a.key].map { |name| { path: File.join(dir, name) } }
      listeners = [{ name: "plain", descriptor: 0 }, { name: "tls", descriptor: 1, certificates: { pairs: [pair] } }]
      # The port is in the place of a log's descriptor.
      LoneProxy.open(dir, log: port, access_log: nil, listeners: listeners) do |proxy|
        expect(proxy.said_before).to eq(["error no client can connect to tls until this is repaired: cannot read #{dir}/a.pem: No such file or directory\n"])
        client, worker = proxy.ask
        worker.write("HTTP/1.1 204 No Content\r\n\r\n")
        expect(client.gets).to eq("HTTP/1.1 204 No Content\r\n")
        @tls = port.addr[1]
        expect { subject }.to raise_error(OpenSSL::SSL::SSLError, /alert/)
        # The certificate last, so that it is never there without its key.
        Edge.files.reverse_each { |name, text| File.write(File.join(dir, name), text) }
        eventually { served?("a") }
      end
    end
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
