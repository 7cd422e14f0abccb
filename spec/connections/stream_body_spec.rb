# frozen_string_literal: true

require "rack"
require_relative "../support/http_apps/body_reading"

RSpec.describe "C4 StreamBody" do
  def serve_streaming(options = {}) = serve(HttpApps.ru(:body_reading), options: { "StreamBody" => true }.merge(options))
  def chunk(data) = "#{data.bytesize.to_s(16)}\r\n".b << data << "\r\n"
  def bytes(size) = Random.new(size).bytes(size)
  def md5(body) = Digest::MD5.hexdigest(body)
  def noted = journal.lines

  describe "when it is on" do
    before(:context) { serve_streaming }

    it "the app gets what there is before the rest is sent, whatever its framing" do
      { "Content-Length: 8" => ["one\n", "two\n"], "Transfer-Encoding: chunked" => [chunk("three\n"), "#{chunk("four\n")}0\r\n\r\n"] }
        .each do |framing, (first, second)|
          one = peer.write("POST /lines HTTP/1.1\r\nHost: a\r\n#{framing}\r\n\r\n#{first}")
          eventually { noted.include?("line #{first[/[a-z]+$/]}") }
          one.write(second)
          expect([one.answer.body, one.get("/pid").body]).to eq(["lines", @worker.to_s])
          expect(noted).to include("line #{second[/[a-z]+$/]}")
        end
    end

    it "a body without a length is announced by its transfer coding alone" do
      expect(begun("/kind", "Transfer-Encoding: chunked").answer.body).to match(/StreamedBody", nil, "chunked"\]/)
    end

    it "a body that is there already, and none, are what they are without the option" do
      one = peer
      expect(one.get("/kind", verb: "POST", body: "abc").body).to eq('["StringIO", "3", nil]')
      expect(one.write(KeptPeer.chunked("/kind", "abc", "de")).answer.body).to eq('["StringIO", "5", nil]')
      expect(one.get("/kind").body).to eq('["Fastrack::NullInput", nil, nil]')
    end

    it "bodies of all sizes arrive whole, however they are read, and the connection goes on" do
      one = peer
      [1, 70_000, 1_048_577, 3_000_000].each do |size|
        body = bytes(size)
        ["/digest", "/pieces/10000", "/copy"].each do |path|
          expect(one.get(path, verb: "POST", body: body).body).to end_with(md5(body))
          expect(one.write(KeptPeer.chunked(path, *body.scan(/.{1,30000}/mn))).answer.body).to end_with(md5(body))
        end
      end
      expect(one.get("/pid").body).to eq(@worker.to_s)
    end

    it "a body is the same wherever the stream is cut, and so are the requests behind it" do
      random = Random.new(7)
      body = bytes(3_000)
      requests = KeptPeer.request("/digest", verb: "POST", body: body) + KeptPeer.chunked("/pieces/7", *body.scan(/.{1,100}/mn)) + KeptPeer.request("/pid")
      10.times do
        one = peer
        at = 0
        while at < requests.bytesize
          size = random.rand(1..1_500)
          one.write(requests.byteslice(at, size))
          at += size
          one.anything_within?(0.002)
        end
        expect(Array.new(3) { one.answer.body }).to eq(["3000 ASCII-8BIT #{md5(body)}", "3000 #{md5(body)}", @worker.to_s])
      end
    end

    it "reads as IO does" do
      one = begun("/contract", "Content-Length: 20", part: "ab")
      one.write("cdefgh\nij\nklmnopqr")
      expect(one.answer.body).to eq(["", "ab", "cde", "cde", "fgh\n", "ij\nklmnopqr", "", nil, nil, "", "", nil, []].inspect)
    end

    it "Ruby's other threads run while the app waits for the client" do
      one = begun("/background", "Content-Length: 4", part: "ab")
      server.await_file("ticked")
      expect(one.write("cd").answer.body).to eq("4")
    end

    it "a response can begin before the body is there, and ends its connection" do
      one = begun("/echo", "Transfer-Encoding: chunked", part: chunk("one\n"))
      one.read_until(/one\n/)
      one.write(chunk("two\n"))
      one.read_until(/two\n/)
      one.write("0\r\n\r\n")
      one.read_to_end
      response = HttpResponse.parse(one.received)
      expect([response.body, response.headers["Connection"], one.ending]).to eq(["begun\none\ntwo\n", "close", :closed])
    end
  end

  describe "when the app does not read it all" do
    before(:context) { serve_streaming }

    it "what has come of it is passed over, and the connection goes on" do
      [["Content-Length: 30000", bytes(30_000)], ["Transfer-Encoding: chunked", "#{chunk(bytes(30_000))}0\r\n\r\n"]].each do |framing, body|
        one = begun("/first/#{framing[0]}", framing, part: body[0, 100])
        one.write(body[100..] + KeptPeer.request("/pid"))
        open_gate(framing[0])
        expect([one.answer.body, one.answer.body]).to eq(["30", @worker.to_s])
      end
    end

    it "a rest that has not come closes the connection, and the client reads the response" do
      one = begun("/only/2", "Content-Length: 5000000", part: "abc")
      response = one.answer
      expect([response.body, response.headers["Connection"]]).to eq(%w[ab close])
      # As a client does that sends first and reads then.
      one.write("x" * 500_000)
      expect(one.closed_without_a_word?).to be(true)
      expect_worker_alive
    end

    { "a length" => ["Content-Length: 5000", "abc", KeptPeer.request("/late")],
      "chunks" => ["Transfer-Encoding: chunked", "3\r\nabc\r\n", "#{KeptPeer.request("/late").then { |late| "#{late.bytesize.to_s(16)}\r\n#{late}\r\n" }}0\r\n\r\n"] }
      .each do |what, (framing, first, rest)|
        it "nothing of one with #{what} is taken for a request" do
          # The connection may be kept, where all of it is there before the app has done.
          one = begun("/only/2", framing, part: first).write(rest).finish_sending
          one.read_to_end
          expect([HttpResponse.all(one.received).size, calls_of("/late")]).to eq([1, 0])
        end
      end

    it "nothing can be read after close, in another thread, or when the request has been answered" do
      expect(begun("/closed", "Content-Length: 9", part: "ab").answer.body).to eq("IOError closed stream true")
      expect(begun("/keep", "Content-Length: 9", part: "ab").answer.body).to match(/only in the thread/)
      expect(peer.get("/kept").body).to match(/closed stream.*only until its request has been answered/)
    end

    it "an app that raises is answered for" do
      one = begun("/none-such", "Content-Length: 9", part: "ab")
      expect([one.answer.status, one.closed_without_a_word?]).to eq([500, true])
      expect_worker_alive
    end
  end

  describe "with Expect: 100-continue" do
    before(:context) { serve_streaming }

    it "the client is asked for the body when the app reads it" do
      one = begun("/digest", "Expect: 100-continue", "Content-Length: 3")
      one.read_until(%r{\AHTTP/1.1 100 Continue\r\n\r\n\z})
      one.received.clear
      one.write("abc")
      expect([one.answer.body, one.get("/pid").body]).to eq(["3 ASCII-8BIT #{md5("abc")}", @worker.to_s])
    end

    it "it is not asked when the app answers without the body; the connection closes then" do
      one = begun("/pid", "Expect: 100-continue", "Content-Length: 3")
      response = one.answer
      expect([response.status, response.headers["Connection"], one.closed_without_a_word?]).to eq([200, "close", true])
    end
  end

  describe "when the client does not go on, or not by the rules" do
    before(:context) { serve_streaming }

    it "a client that has gone raises EOFError" do
      ["Content-Length: 9", "Transfer-Encoding: chunked"].each do |framing|
        one = begun("/failing/#{framing[0]}", framing, part: "3\r\nab")
        one.finish_sending
        one.read_to_end
      end
      begun("/failing", "Content-Length: 9", part: "ab").abort
      eventually { noted.grep(/\AEOFError /).size == 3 }
      expect_worker_alive
    end

    it "bad chunks raise IOError, and are answered with 400" do
      one = begun("/failing", "Transfer-Encoding: chunked", part: chunk("abc"))
      one.write("zz\r\n#{KeptPeer.request("/later")}")
      expect([one.answer.status, one.closed_without_a_word?, calls_of("/later")]).to eq([400, true, 0])
      expect(noted).to include("IOError malformed chunked body")
      expect(peer.write("POST /late HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n").answer.status).to eq(400)
      expect(calls_of("/late")).to eq(0)
    end

    it "an app that goes on after that has its answer sent, and the connection is closed" do
      one = begun("/failing/on", "Transfer-Encoding: chunked", part: chunk("abc"))
      one.write("zz\r\n#{KeptPeer.request("/later")}")
      response = one.answer
      expect([response.body, response.headers["Connection"], one.closed_without_a_word?, calls_of("/later")]).to eq(["rescued", "close", true, 0])
    end

    it "bytes beyond the body of a last request are an error" do
      one = begun("/failing", "Connection: close", "Content-Length: 4", part: "ab")
      expect(one.write("cdGET").answer.status).to eq(400)
    end

    it "a body over MaxBodySize raises IOError, and is answered with 413; one that says so never reaches the app" do
      serve_streaming("MaxBodySize" => 1000)
      one = begun("/failing", "Transfer-Encoding: chunked", part: chunk("a" * 900))
      expect([one.write(chunk("b" * 101)).answer.status, noted]).to match([413, include("IOError body too large")])
      expect(peer.write("POST /late HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n").answer.status).to eq(413)
      expect(calls_of("/late")).to eq(0)
    end

    it "a pause longer than BodyTimeout raises IOError, and is answered with 408" do
      timeout = GcMode.patient(1.5)
      serve_streaming("BodyTimeout" => timeout)
      one = begun("/failing", "Content-Length: 9", part: "a")
      # Longer than that altogether.
      4.times { expect(one.write("b").anything_within?(timeout / 3)).to be(false) }
      expect(seconds { expect(one.write("b").answer.status).to eq(408) }).to be > timeout * 0.9
      expect(noted).to include("IOError request took too long")
    end

    it "the time that a client takes is not the app's" do
      serve_streaming("RequestTimeout" => 1)
      one = begun("/digest", "Content-Length: 3", part: "a")
      expect([one.anything_within?(1.5), one.write("bc").answer.status]).to eq([false, 200])
      expect_worker_alive
    end

    it "no descriptor is left behind" do
      sockets = -> { ProcessTable.descriptors(@worker).values.compact.count { |name| name.match?(/\Asocket:|deleted/) } }
      server.get("/")
      idle = sockets.call
      5.times { |index| begun("/failing/#{index}", "Content-Length: 9", part: "ab").finish_sending.read_to_end }
      5.times { |index| begun("/only/#{index}", "Content-Length: 9", part: "abcdef").close }
      server.get("/")
      eventually(10, -> { "#{sockets.call} open, #{idle} when idle" }) { sockets.call <= idle }
    end
  end

  it "TERM lets it finish" do
    serve_streaming
    one = begun("/digest", "Content-Length: 3", part: "a")
    server.signal(:TERM)
    expect([one.write("bc").answer.body, server.wait.exitstatus]).to eq(["3 ASCII-8BIT #{md5("abc")}", 0])
  end

  it "TERM waits no longer than some seconds for a client that sends nothing" do
    serve_streaming
    one = begun("/failing", "Content-Length: 3", part: "a")
    expect(seconds { server.signal(:TERM) && expect(one.answer.status).to(eq(408)) }).to be > 4
    expect(server.wait.exitstatus).to eq(0)
  end

  it "Rack 2's inputs can be rewound, and say their size; Rack 3's cannot" do
    serve_streaming
    body = "line\n#{bytes(300_000)}".b
    one = begun("/twice", "Content-Length: #{body.bytesize}", part: body[0, 100])
    if HttpApps.rack3?
      expect(one.answer.status).to eq(500)
    else
      one.write(body[100..])
      expect([one.answer.body, one.get("/pid").body]).to eq(["true true true #{md5(body)}", @worker.to_s])
    end
  end

  it "Rack::Lint has nothing to complain about" do
    serve(%(require "rack"\nrequire "rack/lint"\nrequire #{HttpApps::FOLDER.inspect}\n#{HttpApps.ru(:clean, middleware: ["Rack::Lint"])}), options: { "StreamBody" => true })
    ["Content-Length: 70000", "Transfer-Encoding: chunked"].each do |framing|
      body = "a line\n".ljust(70_000, "x")
      one = peer.write("POST /input HTTP/1.1\r\nHost: a\r\n#{framing}\r\n\r\n")
      expect(one.anything_within?(0.05)).to be(false)
      response = one.write(framing.start_with?("T") ? "#{chunk(body)}0\r\n\r\n" : body).answer
      expect([response.status, response.body]).to eq([200, "70000 0"])
    end
    expect(server.log).not_to match(/Lint/)
  end

  it "a request whose body is under way goes to a worker that is free" do
    serve_streaming("MaxWorkers" => 2)
    server.await_workers(2)
    busy = begun("/digest", "Content-Length: 3", part: "a")
    others = Array.new(4) { peer.get("/pid").body }
    expect([others.uniq.size, busy.write("bc").answer.status]).to eq([1, 200])
  end
end
