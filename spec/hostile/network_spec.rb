# frozen_string_literal: true

# What clients and the network can do, a line each: what the client sees. A second later the service is what it was. Slow and
# vanishing clients, framing and limits have files of their own that go deeper.
RSpec.describe "A hostile network", once: "bytes on the wire" do
  head = "Host: h\r\nConnection: close\r\n"
  get = "GET / HTTP/1.1\r\n#{head}\r\n"
  leave = ->(peer) { peer.abort && nil }

  # What the client sends, what it does then, and what it sees: nil where it does not look.
  acts = {
    # --- clients that leave: at each stage in connections/faults_spec.rb
    "connects and says nothing" => ["", leave, nil],
    "connects and ends at once" => ["", :finish_sending.to_proc, :nothing],
    "ends in the head" => ["GET / HTT", :finish_sending.to_proc, :nothing],
    "ends in a body" => ["POST /upload HTTP/1.1\r\n#{head}Content-Length: 1000\r\n\r\nabc", :finish_sending.to_proc, :nothing],
    "ends its side when it has asked" => [get, :finish_sending.to_proc, 200],
    "leaves in a large response" => ["GET /large HTTP/1.1\r\n#{head}\r\n", ->(peer) { peer.read_until(/lll/) && peer.abort && nil }, nil],
    "asks a hundred times for what is large and leaves" => ["GET /large HTTP/1.1\r\nHost: h\r\n\r\n" * 100, leave, nil],

    # --- bytes that are no request, and requests that say two things: the others are in http/rules_spec.rb
    "sends nothing but zeros" => ["\0" * 100_000, nil, 400],
    "sends a line without an end" => ["GET /#{"x" * 1_000_000}", nil, 414],
    "sends fields without an end" => ["GET / HTTP/1.1\r\n#{"X: y\r\n" * 200_000}", nil, 431],
    "greets as for TLS" => ["\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03#{"\xaa" * 500}\r\n\r\n".b, nil, 400],
    "wants to change to HTTP/2" => ["GET / HTTP/1.1\r\n#{head.sub("close", "close, Upgrade, HTTP2-Settings")}Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n", nil, 200]
  }

  before(:context) { serve_hostile }

  def after_act(bytes, deed)
    HttpPeer.open(server) do |peer|
      peer.write(bytes)
      next if deed && deed.call(peer).nil?

      status_of(peer.read_to_end)
    end
  end

  acts.each do |what, (bytes, deed, seen)|
    it "#{what}: it sees #{seen.inspect}, and nobody else anything" do
      expect(after_act(bytes, deed)).to eq(seen)
      expect_order
    end
  end

  it "leaves while the app works: nobody else sees anything" do
    in_the_app do
      peer = HttpPeer.new(server).write("GET /slow HTTP/1.1\r\n#{head}\r\n")
      await_app
      peer.abort
      server.write("go", "")
      expect_order
    end
  end

  # What takes more than one connection, or a special one.
  {
    "hundreds of clients that say nothing" => ->(server) { Array.new(300) { HttpPeer.new(server) } },
    "hundreds of clients in the middle of a head" => ->(server) { Array.new(300) { HttpPeer.new(server).write("GET / HT") } },
    "a hundred clients that take no response" => lambda { |server|
      Array.new(100) { HttpPeer.new(server, receive_buffer: 4096).write("GET /large HTTP/1.1\r\nHost: h\r\n\r\n") }
    },
    "clients that reset before anybody accepts" => ->(server) { Array.new(300) { HttpPeer.new(server).tap(&:abort) } },
    "a client that sends urgent data" => lambda { |server|
      socket = server.connect
      socket.send("G", Socket::MSG_OOB)
      socket.write("ET / HTTP/1.1\r\n")
      [socket]
    }
  }.each do |what, make|
    it "#{what}: nobody else sees anything while they are there" do
      peers = make.call(server)
      6.times { expect(server.get("/").status).to eq(200) }
      peers.each(&:close)
      expect_order
    end
  end
end
