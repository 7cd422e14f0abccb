# frozen_string_literal: true

# Where only the close of the connection ends a response, an end of its process in the middle must look like none.
RSpec.describe "D11 a response that only the close ends", once: "bytes on the wire" do
  app = <<~'RUBY'
    SIZE = 3_000_000
    wait = -> { sleep 0.005 until File.exist?("go") }
    parts = lambda do |path|
      case path
      when "/gate" then Enumerator.new { |body| body << "part"; wait.call; body << "rest" }
      else Enumerator.new { |body| (SIZE / 1000).times { body << "p" * 1000 } }
      end
    end
    stream = ->(io) { io.write("part"); wait.call; io.write("rest"); io.close }
    run lambda { |env|
      next [200, { "rack.hijack" => stream }, []] if env["PATH_INFO"] == "/hijack"
      [200, { "content-type" => "text/plain" }, parts.call(env["PATH_INFO"])]
    }
  RUBY

  let(:size) { 3_000_000 }

  def asked(path, protocol, **options)
    HttpPeer.new(server, **options).write(message("GET #{path} HTTP/#{protocol}", "Host: a", "Connection: close"))
  end

  # The body without the lines of its chunks.
  def body_of(peer) = peer.received.split("\r\n\r\n", 2).last.gsub(/\h+\r\n|\r\n/, "")

  [["/gate", "1.0"], ["/gate", "1.1"], ["/hijack", "1.0"], ["/hijack", "1.1"]].each do |path, protocol|
    it "D11 ends by a reset where SIGKILL ends the worker in the middle of #{path} by HTTP/#{protocol}" do
      serve(app)
      peer = asked(path, protocol)
      peer.read_until(/part(?:\r\n)?\z/)
      server.signal(:KILL, to: @worker)
      peer.read_to_end
      expect([body_of(peer), peer.ending]).to eq(["part", :reset])
    end

    it "D11 ends in order where all of #{path} has been sent by HTTP/#{protocol}" do
      serve(app)
      peer = asked(path, protocol)
      peer.read_until(/part(?:\r\n)?\z/)
      server.write("go", "")
      peer.read_to_end
      expect([body_of(peer), peer.ending]).to eq(["partrest", :closed])
    end
  end

  it "D11 ends in order for a client that takes it long after the app is done, also after a hand-over" do
    serve(app, options: { "MaxWorkers" => 2 })
    peer = asked("/large", "1.0", receive_buffer: 4096)
    peer.read_until(/ppp/)
    expect(server.get("/large").status).to eq(200)
    workers = server.await_workers(2)
    server.signal(:HUP)
    server.await_workers(2) { |found| (found & workers).empty? }
    peer.read_to_end
    expect([body_of(peer).bytesize, peer.ending]).to eq([size, :closed])
  end

  it "D11 ends by a reset where SIGKILL ends the worker that sends the rest of it" do
    serve(app)
    peer = asked("/large", "1.0", receive_buffer: 4096)
    peer.read_until(/ppp/)
    # The app is done with it.
    expect(server.get("/large").status).to eq(200)
    server.signal(:KILL, to: @worker)
    peer.read_to_end
    expect([body_of(peer).bytesize < size, peer.ending]).to eq([true, :reset])
  end

  it "D11 half of it never passes for a whole one behind nginx" do
    serve(app)
    nginx = HttpNginx.new("127.0.0.1:#{server.port}", settings: "proxy_buffering off;")
    HttpPeer.open(nginx) do |peer|
      peer.write(message("GET /gate HTTP/1.1", "Host: a", "Connection: close")).read_until(/part/)
      server.signal(:KILL, to: @worker)
      peer.read_to_end
      expect { HttpResponse.parse(peer.received) }.to raise_error(HttpResponse::Malformed)
    end
  ensure
    nginx&.stop
  end
end
