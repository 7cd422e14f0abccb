# frozen_string_literal: true

require "uri"

# Connection is the server's to decide (A14), and with it what it names (RFC 9110, 7.6.1 and 7.8).
RSpec.describe "D11 what an app says of the connection", once: "the server's fields, whatever Rack says" do
  app = <<~'RUBY'
    require "uri"
    run lambda { |env|
      fields = URI.decode_www_form(env["QUERY_STRING"]).to_h
      status = fields.delete("status").to_i
      body = fields.delete("body")
      case env["PATH_INFO"]
      when "/hints" then env["rack.early_hints"].call(fields)
      when "/hints-after-hijack"
        socket = env["rack.hijack"].call
        said = begin
          env["rack.early_hints"].call("link" => "</a>").inspect
        rescue IOError => e
          e.message
        end
        socket.write("HTTP/1.1 200 OK\r\nContent-Length: #{said.bytesize}\r\n\r\n#{said}")
        socket.close
        next [200, {}, []]
      end
      fields = {} unless env["PATH_INFO"] == "/"
      fields["rack.hijack"] = ->(io) { io.write("raw"); io.close } if body == "hijack"
      [status.zero? ? 200 : status, fields, ["hello"]]
    }
  RUBY

  before(:context) { serve(app, options: { "EarlyHints" => true }) }

  def path(at = "/", **fields) = "#{at}?#{URI.encode_www_form(fields)}"

  # The response to a request on a connection that the client would keep, and whether another one follows.
  def answered(version: "1.1", **fields)
    kept = version == "1.0" ? ["Connection: keep-alive"] : []
    request = message("GET #{path(**fields)} HTTP/#{version}", "Host: a", *kept)
    responses = HttpResponse.all(HttpPeer.exchange(server, request + message("GET / HTTP/1.1", "Host: a", "Connection: close")).first)
    [responses.first, responses.size == 2]
  end

  ["close", " close ", "Close", "x, close", "keep-alive, close", "close,", "x\nclose"].each do |value|
    it "D11 ends it after #{value.inspect}" do
      response, goes_on = answered("connection" => value)
      expect([response.headers.all("connection"), goes_on]).to eq([%w[close], false])
    end
  end

  ["", "keep-alive", "closed", "x-close", "x", "\"close\""].each do |value|
    it "D11 does not end it after #{value.inspect}" do
      response, goes_on = answered("connection" => value)
      expect([response.headers.all("connection"), goes_on]).to eq([[], true])
    end
  end

  it "D11 has what Connection names left out with it, in whatever order, case and number" do
    fields = { "X-One" => "1\n1b", "x-two" => "2", "x-three" => "3", "Keep-Alive" => "timeout=5" }
    named = { "Connection" => "x-ONE, keep-alive, X-Three" }
    [fields.merge(named), named.merge(fields)].each do |all|
      2.times do
        response, goes_on = answered(**all)
        expect([response.headers.names.map(&:downcase), response.body, goes_on]).to eq([%w[date server x-two content-length], "hello", true])
      end
    end
  end

  it "D11 has no response left without its length, its date or its server by what Connection names" do
    response, goes_on = answered("Content-Length" => "5", "Connection" => "content-length, date, server, transfer-encoding")
    expect([response.headers.names.map(&:downcase), response.body, goes_on]).to eq([%w[date server content-length], "hello", true])
  end

  [200, 426].each do |status|
    it "D11 has Connection name the Upgrade that the app offers with #{status}" do
      response, goes_on = answered("status" => status, "upgrade" => "TLS/1.0, HTTP/2.0")
      expect([response.status, response.headers["upgrade"], response.headers.all("connection"), goes_on])
        .to eq([status, "TLS/1.0, HTTP/2.0", %w[Upgrade], true])
      response, goes_on = answered("upgrade" => "h2c", "connection" => "Upgrade, close")
      expect([response.headers.all("connection"), goes_on]).to eq([["close, Upgrade"], false])
      response, goes_on = answered(version: "1.0", "upgrade" => "h2c")
      expect([response.headers.all("connection"), goes_on]).to eq([["keep-alive, Upgrade"], true])
    end
  end

  it "D11 has no field of the connection in a 103" do
    request = message("GET #{path("/hints", "link" => "</a>", "connection" => "x-hop", "x-hop" => "1", "upgrade" => "h2c", "keep-alive" => "max=5")} HTTP/1.1", "Host: a", "Connection: close")
    expect(server.raw(request)).to start_with("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n")
  end

  it "D11 has a 101 become a 500 where nothing takes the connection over" do
    response, = answered("status" => "101", "upgrade" => "echo")
    expect([response.status, response.headers["upgrade"]]).to eq([500, nil])
    eventually { server.log.include?("101 takes rack.hijack") }
    expect_worker_alive
  end

  it "C5 has early hints raise an IOError where the app has hijacked the connection" do
    expect(HttpResponse.parse(server.raw(message("GET /hints-after-hijack HTTP/1.1", "Host: a"))).body).to eq("the response has begun")
    expect_worker_alive
  end
end
