# frozen_string_literal: true

RSpec.describe "C5 rack.protocol" do
  # Switches to the first protocol that is offered, or to one that is not.
  before(:context) { serve(<<~'RUBY') }
    shout = ->(io) { io.write(io.readpartial(100).upcase) && io.close }
    run lambda { |env|
      offered = env["rack.protocol"]
      case env["PATH_INFO"]
      when "/offered" then [200, {}, [offered.inspect]]
      when "/other" then [200, { "rack.protocol" => "other" }, shout]
      else [200, { "rack.protocol" => offered.first, "x-own" => "yes" }, shout]
      end
    }
  RUBY

  def exchange(path, *fields, version: "1.1", after: "")
    HttpPeer.exchange(server, message("GET #{path} HTTP/#{version}", "Host: a", *fields, body: after), half_close: true).first
  end

  def offered(*fields, **keywords) = HttpResponse.parse(exchange("/offered", *fields, **keywords)).body

  if HttpApps.rack3? && Gem::Version.new(Rack.release) >= Gem::Version.new("3.1")
    it "C5 has the protocols that the client offers" do
      expect(offered("Connection: keep-alive, Upgrade", "Upgrade: websocket, h2c,, a/1")).to eq('["websocket", "h2c", "a/1"]')
      expect(offered("Connection: upgrade", "Upgrade: a", "X-Twice: 1", "Upgrade: b", "X-Twice: 2")).to eq('["a", "b"]')
    end

    it "C5 is not there where Connection does not name Upgrade, nor for HTTP/1.0" do
      expect([offered("Upgrade: websocket"), offered("Connection: Upgrade")]).to eq(["nil", "nil"])
      expect(offered("Connection: Upgrade", "Upgrade: websocket", version: "1.0")).to eq("nil")
    end

    it "C5 is answered by 101, and the body has the connection, with what was sent already" do
      head, rest = exchange("/", "Connection: Upgrade", "Upgrade: loud", after: "hello").split("\r\n\r\n", 2)
      expect(head).to start_with("HTTP/1.1 101 Switching Protocols\r\n").and end_with("\r\nx-own: yes\r\nUpgrade: loud\r\nConnection: Upgrade")
      expect(head).not_to include("rack.protocol")
      expect(rest).to eq("HELLO")
      expect_worker_alive_at("/offered")
    end

    it "C5 gives 500 for a protocol that the client has not offered" do
      expect(HttpResponse.parse(exchange("/other", "Connection: Upgrade", "Upgrade: loud")).status).to eq(500)
      expect(HttpResponse.parse(exchange("/other")).status).to eq(500)
      expect_worker_alive_at("/offered")
    end
  else
    it("C5 is not there before Rack 3.1") { expect(offered("Connection: Upgrade", "Upgrade: websocket")).to eq("nil") }
  end

  def expect_worker_alive_at(path) = expect([server.workers, server.get(path).status]).to eq([[@worker], 200])
end
