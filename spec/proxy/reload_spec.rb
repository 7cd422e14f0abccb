# frozen_string_literal: true

RSpec.describe "the proxy: HUP and USR1 replace none", once: "the program knows no Ruby" do
  def server = @server
  def bind(port = 0) = "bind 'ssl://127.0.0.1:#{port}?cert=a.pem&key=a.key'\nmax_workers 1\npublic_files 'public'\n"
  def lines(name) = server.file?(name) ? File.readlines(server.file(name)) : []

  # Files that the proxy has open, which only root may see.
  def open_files = Dir.glob("/proc/#{@proxy}/fd/*").map { |one| File.readlink(one) }

  def start(config = "", port: 0)
    @server = Server.ready(ru: HttpApps.ru(:echo), fastrack: true, config: "#{bind(port)}#{config}", files: { **Edge.files, "public/a.txt" => "a" },
                           options: { "Host" => nil, "Port" => nil })
    @proxy = Edge.proxy(server)
    @client = Edge.connect(server)
  end

  after { @client&.close }

  def refused?(port)
    TCPSocket.new("127.0.0.1", port).close
    false
  rescue Errno::ECONNREFUSED
    true
  end

  def get(path = "/a.txt") = Edge.ask(@client, path).first[/ (\d{3})/, 1]

  it "HUP that names another access log, another format and another address: clients stay connected" do
    FreePort.keep do |first|
      start("access_log 'first.log'\n", port: first)
      expect(get).to eq("200")
      eventually { lines("first.log").size == 1 }
      FreePort.keep do |other|
        server.reload("#{bind(first)}#{bind(other).lines.first}access_log 'second.log'\naccess_log_format 'json'\n")
        server.await_ready(2)
        text, = Open3.capture2e("curl", "-sSk", "-o", File::NULL, "-w", "%{http_code}", "https://127.0.0.1:#{other}/a.txt")
        expect([text, get, Edge.proxy(server)]).to eq(["200", "200", @proxy])
        eventually { lines("second.log").size == 2 }
        expect(lines("second.log")).to all start_with("{")
        server.reload(bind(first))
        server.await_log("no longer listening on 127.0.0.1:#{other}")
        eventually { refused?(other) }
        expect([get, Edge.proxy(server)]).to eq(["200", @proxy])
      end
    end
    expect(open_files.grep(/\.log$/)).to eq([server.file("server.log")]) if Process.euid.zero?
  end

  it "USR1 gives it new log files, and it has none of the old ones open" do
    start("access_log 'access.log'\nstderr_path 'errors.log'\n")
    get
    eventually { lines("access.log").size == 1 }
    %w[access errors].each { |name| File.rename(server.file("#{name}.log"), server.file("#{name}.old")) }
    server.signal(:USR1)
    eventually { lines("errors.log").grep(/log files are reopened/).any? }
    eventually { get && lines("access.log").any? }
    eventually { open_files.grep(/\.old$/).empty? } if Process.euid.zero?
    expect(Edge.proxy(server)).to eq(@proxy)
  end
end
