# frozen_string_literal: true

RSpec.describe "the proxy: ranges", once: "the program knows no Ruby" do
  def server = @server

  length = 50
  text = Array.new(length) { |number| (33 + number).chr }.join

  before(:context) do
    @server = Edge.start(config: "public_files 'public'\n", files: { "public/a.txt" => text })
    path = server.file("nginx.sock")
    @nginx = HttpNginx.new(nil, path: path, servers: "server { listen unix:#{path}; root #{server.file("public")}; }")
  end

  after(:context) { @nginx&.stop }

  # Status, the range of a single part, and the bytes; of several parts each head and its bytes.
  def seen(io, ranges)
    io.write(message("GET /a.txt HTTP/1.1", "Host: localhost", "Range: bytes=#{ranges}"))
    head = io.gets("\r\n\r\n")
    body = io.read(head[/^content-length: (\d+)/i, 1].to_i)
    boundary = head[/boundary=(\S+)/, 1]
    parts = boundary && body.split(/(?:\r\n)?--#{boundary}(?:--)?\r\n/).map { |part| [part[/^content-range: (.*?)\r/i, 1], part[/\r\n\r\n(.*)/m, 1]] }
    [head[/\d{3}/].to_i, boundary ? nil : head[/^content-range: (.*?)\r/i, 1], parts || (head.include?(" 416 ") ? nil : body)]
  end

  it "a client gets what nginx gives, whatever well-formed ranges it asks for" do
    random = Random.new(RSpec.configuration.seed)
    number = ->(least = 0) { random.rand(least..[length + 10, least].max) }
    one = lambda do
      first = number.call
      ["#{first}-", "#{first}-#{number.call(first)}", "-#{number.call}", "#{random.rand(4)}-#{random.rand(4..8)}"].sample(random: random)
    end
    ours, theirs = Edge.connect(server), @nginx.connect
    400.times do
      ranges = Array.new(random.rand(1..4)) { one.call }.join([",", ", ", " ,"].sample(random: random))
      expect([ranges, *seen(ours, ranges)]).to eq([ranges, *seen(theirs, ranges)])
    end
  end
end
