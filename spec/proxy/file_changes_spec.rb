# frozen_string_literal: true

RSpec.describe "the proxy: files that change", once: "the program knows no Ruby" do
  def server = @server

  before(:context) do
    ru = "run ->(env) { [200, { 'content-type' => 'text/plain' }, ['app ' + env['PATH_INFO']]] }\n"
    @server = Edge.start(ru: ru, config: "public_files 'public'\ncache_control '*', 'public, immutable'\n", files: { "public/a.txt" => "a" })
  end

  def get(path) = Edge.ask(Edge.connect(server), path).then { |head, body| [head[/ (\d+)/, 1].to_i, head[/^etag: (\S+)/i, 1], body] }

  { "small" => 1000, "large" => 300_000 }.each do |name, size|
    it "a #{name} file that others replace again and again within a second comes with its own tag, whole" do
      tags = {}
      10.times do |number|
        text = number.to_s * (size + number)
        Edge.replace(server, "public/#{name}" => text)
        status, tag, body = get("/#{name}")
        expect([status, body.chars.uniq.size, body.bytesize]).to eq([200, 1, size + body[0].to_i])
        expect(tags[tag] ||= body).to eq(body)
      end
    end

    it "a #{name} file that is removed is the app's to answer, and never an empty 404" do
      server.write("public/gone-#{name}", "x" * size)
      expect(get("/gone-#{name}").values_at(0, 2)).to eq([200, "x" * size])
      File.unlink(server.file("public/gone-#{name}"))
      Eventually.eventually(Server::DEADLINE) do
        status, _, body = get("/gone-#{name}")
        expect([[200, "x" * size], [200, "app /gone-#{name}"]]).to include([status, body])
        body.start_with?("app")
      end
    end
  end

  it "a file that is overwritten while it is sent has no end for its client" do
    server.write("public/long", "a" * 8_000_000)
    tls = Edge.connect(server)
    tls.write("GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n")
    head = tls.gets("\r\n\r\n")
    server.write("public/long", "b" * 8_000_000)
    got = begin
      tls.read(8_000_000).to_s
    rescue SystemCallError, OpenSSL::SSL::SSLError
      ""
    end
    expect([head[/ (\d+)/, 1], got.bytesize < 8_000_000]).to eq(["200", true])
  end

  it "a file that the proxy's user may not read is the app's to answer", if: !Process.euid.zero? do
    File.chmod(0, server.write("public/closed", "closed"))
    expect(get("/closed").last).to eq("app /closed")
  end
end
