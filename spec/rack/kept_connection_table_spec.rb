# frozen_string_literal: true

# What docs/rack.md and docs/connections.md say of a response, on a connection that is kept: what comes before and after it counts.
RSpec.describe "C4 a kept connection, by the tables of the documentation" do
  app = <<~'RUBY'
    require "rack"
    require "rack/files"
    require "rack/etag"
    require "rack/conditional_get"
    File.binwrite("file.bin", ("0".."9").to_a.join * 1_000) unless File.exist?("file.bin")
    note = ->(line) { File.open("journal", "a") { |file| file.puts(line) } }
    files = (defined?(Rack::Files) ? Rack::Files : Rack::File).new(Dir.pwd)
    tagged = Rack::ConditionalGet.new(Rack::ETag.new(->(_) { [200, { "content-type" => "text/plain" }, ["tagged"]] }))
    text = ->(body, status = 200, headers = {}) { [status, { "content-type" => "text/plain" }.merge(headers), body] }

    # All that the SPEC wants of a stream, as a conversation in lines.
    talk = lambda do |io|
      said = []
      io.wait_readable
      said << (io.read_nonblock(4) rescue $!.class)
      said << (io.read_nonblock(1, exception: false) rescue $!.class)
      io.write("ready\n")
      said << io.read(5)
      said << io.write_nonblock("now\n")
      said << io.flush.equal?(io)
      said << io.closed?
      said << io.read
      io.write("#{said.inspect}\n")
      io.close_write
      io.close_read
      File.write("closed", io.closed?.inspect)
      io.close
      File.write("closed", "#{File.read("closed")} #{io.closed?}")
    end

    run(lambda do |env|
      path = env["PATH_INFO"]
      note.call("call #{path}")
      case path
      when "/raise" then raise "as asked"
      when "/header" then text.call(["x"], 200, "x-bad" => "a\r\nb")
      when "/status" then [99, {}, []]
      when "/missing" then text.call(["nothing here"], 404)
      when "/error" then text.call(["the app's own"], 500)
      when "/short" then text.call(["x"], 200, "content-length" => "5")
      when "/half" then text.call(Enumerator.new { |parts| parts << "one" && raise("in between") })
      when "/close" then text.call(["x"].tap { |body| body.define_singleton_method(:close) { raise "in close" } })
      when "/none" then [204, {}, []]
      when "/order"
        body = Enumerator.new { |parts| note.call("each").then { parts << "ordered" } }
        body.define_singleton_method(:close) { note.call("close") }
        (env["rack.after_reply"] ||= []).push(-> { note.call("reply 1") }, -> { note.call("reply 2") })
        env["rack.response_finished"]&.push(->(*) { note.call("finished 1") }, ->(*) { note.call("finished 2") })
        text.call(body)
      when "/tagged" then tagged.call(env)
      when "/file.bin" then files.call(env)
      when "/hijack" then talk.call(env["rack.hijack"].call.tap { |io| io.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: talk\r\nConnection: Upgrade\r\n\r\n") }) && [-1, {}, []]
      when "/partial" then text.call([], 200, "rack.hijack" => talk)
      when "/upgrade" then [200, { "rack.protocol" => env["rack.protocol"].first }, talk]
      when "/protocol" then text.call([env["rack.protocol"].inspect])
      when "/live"
        queue = Queue.new
        Thread.new do
          3.times do |number|
            sleep 0.002 until File.exist?("part#{number}")
            queue << "part #{number}\n"
          end
          queue << nil
        end
        text.call(Enumerator.new { |parts| while (part = queue.pop) do parts << part end }, 200, "cache-control" => "no-cache")
      when "/hints" then env["rack.early_hints"].call("link" => "</a.css>; rel=preload") || text.call(["hinted"])
      when "/body" then text.call([env["rack.input"].read])
      else text.call([path])
      end
    end)
  RUBY

  def client
    peer = KeptPeer.new(server)
    yield peer
  ensure
    peer&.close
  end

  def noted = server.lines_of("journal")

  [false, true].each do |unix|
    context(unix ? "over a unix socket" : "over TCP") do
      before(:context) { serve(app, unix: unix, options: { "EarlyHints" => true, "MaxRequestPerChild" => 0 }) }

      reset = unix ? :closed : Front::CUT
      # What comes between two requests of a pipeline: its statuses, and how the connection ends if it does. What follows is not heard
      # then, and answered else.
      { "an exception" => ["/raise", [200, 500], :closed], "a header that cannot be sent" => ["/header", [200, 500], :closed],
        "a status that is none" => ["/status", [200, 500], :closed], "a body that is too short" => ["/short", [200], reset],
        "an exception after the first part" => ["/half", [200], reset], "an exception from close" => ["/close", [200, 200, 200], nil],
        "the app's own 404" => ["/missing", [200, 404, 200], nil], "the app's own 500" => ["/error", [200, 500, 200], nil],
        "a response without a body" => ["/none", [200, 204, 200], nil] }.each do |what, (path, statuses, ending)|
        it "pipelined requests with #{what} in the middle get #{statuses.join(", ")}, and #{ending ? "the end" : "the rest"}" do
          last = "/after#{path}"
          client do |peer|
            peer.write(["/first", path, last].map { |one| KeptPeer.request(one) }.join)
            if ending == reset && path.match?(/short|half/)
              peer.read_to_end
              expect([HttpResponse.take(peer.received).first.status, peer.ending]).to eq([200, ending])
              expect(peer.received).not_to include("0\r\n\r\n")
            else
              expect(statuses.map { peer.answer.status }).to eq(statuses)
              ending ? expect(peer).to(be_closed_without_a_word) : expect(peer).not_to(be_anything_within(0))
            end
          end
          expect(noted.count("call #{last}")).to eq(ending ? 0 : 1)
          expect_worker_alive
        end
      end

      it "parts, close and callbacks come in their order, and before the client's next request" do
        client do |peer|
          peer.write(KeptPeer.request("/order") + KeptPeer.request("/next"))
          expect([peer.answer.body, peer.answer.body]).to eq(["ordered", "/next"])
        end
        finished = HttpApps.rack3? ? ["finished 2", "finished 1"] : []
        order = ["call /order", "each", "close", "reply 1", "reply 2", *finished, "call /next"]
        expect(noted.drop(noted.index("call /order")).first(order.size)).to eq(order)
      end

      it "ranges, validators and whole files follow each other" do
        client do |peer|
          whole = peer.get("/file.bin")
          expect([whole.status, whole.body.bytesize]).to eq([200, 10_000])
          part = peer.get("/file.bin", "Range: bytes=5-14")
          expect([part.status, part.headers["Content-Range"], part.body]).to eq([206, "bytes 5-14/10000", "5678901234"])
          expect(peer.get("/file.bin", "Range: bytes=20000-").status).to eq(416)
          several = peer.get("/file.bin", "Range: bytes=0-1,10-11")
          expect([several.status, several.body.include?("01")]).to eq([several.status, true])
          expect(peer.get("/file.bin", "Range: bytes=0-4", verb: "HEAD").headers["Content-Length"]).to eq("5")
          etag = peer.get("/tagged").headers["ETag"]
          unchanged = peer.get("/tagged", "If-None-Match: #{etag}")
          expect([etag.nil?, unchanged.status, unchanged.body]).to eq([false, 304, ""])
          since = peer.get("/file.bin", "If-Modified-Since: #{whole.headers["Last-Modified"]}")
          expect([since.status, since.body, peer.get("/last").body]).to eq([304, "", "/last"])
        end
      end

      # The conversation of the app's `talk`, from the client's side.
      def converse(peer, switches)
        head = peer.read_until(/\r\n\r\n/)
        expect(head).to start_with(switches ? "HTTP/1.1 101 Switching Protocols\r\n" : "HTTP/1.1 200 OK\r\n")
        peer.read_until(/ready\n/)
        peer.write("hello")
        peer.read_until(/now\n/)
        peer.write("rest").finish_sending
        said = peer.read_to_end.split("\r\n\r\n", 2).last
        expect(said).to eq(%(ready\nnow\n["ping", :wait_readable, "hello", 4, true, false, "rest"]\n))
        expect(peer.ending).to eq(:closed)
        eventually { server.lines_of("closed") == ["true true"] }
        FileUtils.rm_f(File.join(server.dir, "closed"))
        expect_worker_alive
      end

      { "" => ["/hijack", "Connection: Upgrade", "Upgrade: talk"], " after its head" => ["/partial"] }.each do |how, request|
        it "one that is hijacked#{how} is read, written, flushed and closed by all of the SPEC's methods, and has what came with the request" do
          client do |peer|
            peer.get("/before")
            peer.write("#{KeptPeer.request(*request)}ping")
            converse(peer, how.empty?)
          end
        end
      end

      if HttpApps.rack31?
        it "one that is switched to another protocol by rack.protocol is the same" do
          client do |peer|
            expect(peer.get("/protocol").body).to eq("nil")
            expect(peer.get("/protocol", "Connection: keep-alive, Upgrade", "Upgrade: talk/1, other").body).to eq('["talk/1", "other"]')
            peer.write("#{KeptPeer.request("/upgrade", "Connection: Upgrade", "Upgrade: talk/1")}ping")
            converse(peer, true)
            expect(peer.received).to match(/^upgrade: talk\/1\r$/i)
          end
        end
      else
        it "one whose client offers another protocol goes on with HTTP where the SPEC has no rack.protocol" do
          client do |peer|
            expect(peer.get("/protocol", "Connection: keep-alive, Upgrade", "Upgrade: talk/1").body).to eq("nil")
            expect(peer.get("/last").body).to eq("/last")
          end
        end
      end

      # As ActionController::Live: a thread writes, the body hands on.
      it "a client of HTTP/1.0 gets a live body part by part, without chunks, and its end by the close" do
        client do |peer|
          expect(peer.get("/first", "Connection: keep-alive", version: "1.0").headers["Connection"]).to match(/keep-alive/i)
          peer.ask("/live", "Connection: keep-alive", version: "1.0")
          3.times do |number|
            server.write("part#{number}", "")
            peer.read_until(/part #{number}\n\z/)
          end
          peer.read_to_end
          head, body = peer.received.split("\r\n\r\n", 2)
          expect(head).to match(/^connection: close$/i)
          expect(head).not_to match(/^(transfer-encoding|content-length):/i)
          expect([body, peer.ending]).to eq(["part 0\npart 1\npart 2\n", :closed])
        end
        expect_worker_alive
      end
    end
  end

  # A worker learns of a client's way to ask from its first request on.
  context "whose first request is the worker's first" do
    before { serve(app, options: { "EarlyHints" => true }) }

    it "may wait for 100 Continue" do
      client do |peer|
        peer.write("POST /body HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        expect(peer.answer.status).to eq(100)
        peer.write("hello")
        expect(peer.answer).to have_attributes(status: 200, body: "hello")
        expect(peer.get("/last").body).to eq("/last")
      end
    end

    it "may be switched to another protocol" do
      client do |peer|
        peer.write("#{KeptPeer.request("/hijack", "Connection: Upgrade", "Upgrade: talk")}ping")
        expect(peer.answer.status).to eq(101)
        # By then the app has found nothing more to read.
        peer.read_until(/ready\n/)
        peer.write("hellorest").finish_sending
        expect(peer.read_to_end).to end_with(%("hello", 4, true, false, "rest"]\n))
      end
      expect(server.get("/last").body).to eq("/last")
    end

    it "may get early hints" do
      client do |peer|
        hints, response = peer.ask("/hints").answer, peer.answer
        expect([hints.status, hints.headers["link"], response.body]).to eq([103, "</a.css>; rel=preload", "hinted"])
        expect(peer.get("/last").body).to eq("/last")
      end
    end
  end
end
