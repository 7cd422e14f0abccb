# frozen_string_literal: true

require "openssl"

RSpec.describe "behind Caddy", once: "what Caddy sees" do
  # With the page's own configuration: the places are others, and the certificates Caddy's own.
  def configuration(port)
    page = File.read(File.join(Server::ROOT, "docs/thruster-kamal-caddy.md"))[/^```caddy\n(.*?)^```/m, 1]
    own = ["admin off", "auto_https disable_redirects", "default_bind 127.0.0.1", "https_port #{port}", "local_certs", "skip_install_trust",
           "storage file_system #{server.file("storage")}"]
    "{\n#{own.join("\n")}\n}\n#{page.gsub("/srv/app/current", server.dir).gsub("/run/app/app.sock", server.path)}"
  end

  before(:context) do
    skip "no caddy" unless ENV.fetch("PATH").split(":").any? { |dir| File.executable?(File.join(dir, "caddy")) }
    serve(<<~RUBY, unix: true, options: { "MaxWorkers" => 2 }, files: { "public/assets/a.css" => "body {}", "public/index.html" => "not the app's" })
      event = ->(number) { (sleep 0.005 until File.exist?("event-\#{number}")) || "data: event \#{number}\n\n" }
      events = -> { Enumerator.new { |parts| 3.times { |number| parts << event.call(number) } } }
      map("/events") { run ->(_env) { [200, { "content-type" => "text/event-stream" }, events.call] } }
      map("/") { #{HttpApps.ru(:proxied)} }
    RUBY
    FreePort.keep { |port| start(@port = port) }
  end

  after(:context) { @caddy && Process.kill(:TERM, @caddy) && Process.wait(@caddy) }

  def start(port)
    places = %w[HOME XDG_CONFIG_HOME XDG_DATA_HOME].to_h { |name| [name, server.dir] }
    command = ["caddy", "run", "--adapter", "caddyfile", "--config", server.write("Caddyfile", configuration(port))]
    @caddy = spawn(places, *command, in: File::NULL, %i[out err] => server.file("caddy.log"))
    eventually(20, -> { server.lines_of("caddy.log") }) { curl("/").last.success? }
  end

  def command(*options, path) = ["curl", "-sSk", "--resolve", "app.example.com:#{@port}:127.0.0.1", *options, "https://app.example.com:#{@port}#{path}"]
  def curl(*arguments) = Open3.capture2e(*command(*arguments), binmode: true)
  def echo(*arguments) = Marshal.load(curl(*arguments, "/echo/a%20b?c=d").first) # rubocop:disable Security/MarshalLoad -- written by HttpApps::Echo

  it "requests come through by HTTP/2 and HTTP/1.1, with Caddy's word for the client, its scheme and when it came" do
    { "--http2" => "2", "--http1.1" => "1.1" }.each do |option, version|
      expect(curl(option, "-w", " %{http_version}", "/").first).to eq("hello #{version}")
      expect(echo(option, "-H", "X-Forwarded-For: 6.6.6.6", "-H", "X-Forwarded-Proto: gopher").fetch("env"))
        .to include("PATH_INFO" => "/echo/a%20b", "HTTP_X_FORWARDED_FOR" => "127.0.0.1", "HTTP_X_FORWARDED_PROTO" => "https",
                      "HTTP_X_REQUEST_START" => /\At=\d{13}\z/)
    end
  end

  it "Caddy serves the files of public/, and leaves / to the app" do
    expect(curl("-i", "/assets/a.css").first).to match(/^cache-control: public, max-age=31536000, immutable\r$.*^body \{\}\z/m)
    expect(curl("/").first).to eq("hello")
  end

  it "a large upload comes through whole, with a length and in chunks" do
    File.binwrite(file = server.file("upload"), body = Random.new(1).bytes(20_000_000))
    [["--http2"], ["--http1.1"], ["--http1.1", "-H", "Transfer-Encoding: chunked"]].each { |options| expect(echo(*options, "-T", file)["body"]).to eq(body) }
  end

  it "events arrive one by one" do
    IO.popen(command("-N", "/events")) do |events|
      3.times { |number| server.write("event-#{number}", "") && expect([events.gets, events.gets]).to(eq(["data: event #{number}\n", "\n"])) }
    end
  end

  it "a connection changes its protocol (101)" do
    tls = OpenSSL::SSL::SSLSocket.new(TCPSocket.new("127.0.0.1", @port)).tap { |socket| socket.hostname = "app.example.com" }
    tls.connect.write(message("GET /hijacking/partial/switch HTTP/1.1", "Host: app.example.com", "Connection: Upgrade", "Upgrade: echo"))
    expect(tls.gets("\r\n\r\n")).to match(/\AHTTP\/1\.1 101 /)
    tls.write("hello")
    expect(tls.read).to eq("HELLO")
  ensure
    tls&.close
  end

  it "no request fails while a new master takes over (USR2)" do
    old = server.master
    codes = []
    many = ["--no-progress-meter", "--parallel", "--parallel-max", "8", "-o", File::NULL, "-w", "%{http_code}\n", "/?[1-50]"]
    asking = Thread.new { codes.concat(curl(*many).first.lines) until codes.size >= 200 && !ProcessTable.alive?(old) }
    server.signal(:USR2)
    asking.join
    expect([codes.uniq, server.master == old]).to eq([["200\n"], false])
  end
end
