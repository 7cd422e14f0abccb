# frozen_string_literal: true

# What the client got is logged, whoever has made it.
RSpec.describe "The access log's bytes of the server's own error pages", once: "the server's pages" do
  app = <<~'RUBY'
    run lambda { |env|
      case env["PATH_INFO"]
      when "/raise" then raise "no"
      when "/read"
        File.write("reading", "")
        [200, {}, [env["rack.input"].read]]
      when "/hang" then sleep
      else [200, {}, ["hello"]]
      end
    }
  RUBY

  define_method(:start) do |**options|
    @server = Server.start(ru: app, options: { MaxWorkers: 1, AccessLog: "access.log", AccessLogFormat: "json", **options })
  end

  # Statuses and bytes of the lines, and bytes that the clients got.
  def logged(*responses)
    lines = eventually { @server.lines_of("access.log").then { |found| found if found.size >= responses.size } }
    [lines.map { |line| JSON.parse(line).values_at("status", "bytes") }, responses.map { |bytes| bytes.split("\r\n\r\n", 2).last.bytesize }]
  end

  def exchange(request_line) = HttpPeer.exchange(@server, "#{request_line} HTTP/1.1\r\nHost: h\r\n\r\n").first

  it "are those of the page for an app that has raised, and none on HEAD" do
    start
    lines, sizes = logged(exchange("GET /raise"), exchange("HEAD /raise"))
    expect([lines, sizes]).to match([[[500, sizes[0]], [500, 0]], [be_positive, 0]])
  end

  it "are those of the page for a body that the app reads and that breaks a rule" do
    start(StreamBody: true)
    bytes = HttpPeer.open(@server) do |peer|
      peer.write("POST /read HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
      eventually { File.exist?(File.join(@server.dir, "reading")) }
      peer.write("x\r\n").read_to_end
    end
    lines, sizes = logged(bytes)
    expect([lines, sizes]).to match([[[400, sizes[0]]], all(be_positive)])
  end

  it "are those of the page for a request that takes too long" do
    start(RequestTimeout: 0.2)
    page = ""
    # A worker that ends has a moment for its last lines, in which a busy machine may write none.
    eventually { page = exchange("GET /hang").then { |bytes| bytes.empty? ? page : bytes } and @server.lines_of("access.log").any? }
    lines, sizes = logged(page)
    expect([lines.uniq, sizes]).to match([[[504, sizes[0]]], all(be_positive)])
  end
end
