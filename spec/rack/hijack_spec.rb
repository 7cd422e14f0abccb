# frozen_string_literal: true

RSpec.describe "C5 hijacking" do
  [false, true].each do |unix|
    context(unix ? "over a unix socket" : "over TCP") do
      before(:context) { serve(HttpApps.ru(:hijacking), unix: unix) }

      let(:socket_class) { unix ? "UNIXSocket" : "TCPSocket" }

      def exchange(path, *fields, after: "")
        HttpPeer.exchange(server, message("GET #{path} HTTP/1.1", "Host: a", *fields, body: after), half_close: true)
      end

      def body_of(path, **keywords)
        bytes, ending = exchange(path, **keywords)
        expect(ending).to eq(:closed)
        bytes.split("\r\n\r\n", 2).last
      end

      it "C5 full: the app gets a socket, and nothing but what it writes is sent, whatever it returns" do
        expect(exchange("/full/at-once").first).to eq("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n#{socket_class}")
        %w[nil number].each { |way| expect(body_of("/full/#{way}")).to eq(way) }
        expect_worker_alive
      end

      it "C5 partial: rack.hijack is called with the socket, after the headers; it is no header, and the body is closed" do
        bytes, ending = exchange("/partial/plain")
        head, body = bytes.split("\r\n\r\n", 2)
        expect(head).to start_with("HTTP/1.1 200 OK\r\n").and end_with("\r\nx-own: yes\r\nConnection: close")
        expect(head).not_to match(/hijack/i)
        expect([body, ending]).to eq(["partial #{socket_class}", :closed])
        eventually { journal.lines.include?("partial/plain closed") }
      end

      it "C5 partial: what raises there ends the connection, and the worker lives" do
        _, ending = exchange("/partial/raise")
        expect(ending).to eq(unix ? :closed : :reset)
        eventually { server.log.include?("in the hijack (RuntimeError)") && journal.lines.include?("partial/raise closed") }
        expect_worker_alive
      end

      # The rest has nothing to do with the kind of socket.
      next if unix

      it "C5 full: the socket is in rack.hijack_io, and the same when it is asked for again" do
        expect(body_of("/full/twice")).to eq("[true, true]")
      end

      it "C5 full: what was sent right after the request is the first that is read" do
        expect(body_of("/full/echo", after: "said at once")).to eq("SAID AT ONCE")
        expect(body_of("/full/nonblock", after: "at once")).to eq("AT ONCE")
        HttpPeer.open(server) do |peer|
          peer.write(message("GET /full/echo HTTP/1.1", "Host: a"))
          peer.read_until(/\r\n\r\n/)
          peer.write("and later").finish_sending
          expect(peer.read_to_end).to end_with("AND LATER")
        end
      end

      it "C5 full: what was sent after a request with a body is not lost either" do
        [["Content-Length: 3", "abc"], ["Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n"]].each do |field, body|
          bytes, = HttpPeer.exchange(server, message("POST /full/echo HTTP/1.1", "Host: a", field, body: "#{body}beyond"), half_close: true)
          expect(bytes).to end_with("\r\n\r\nBEYOND")
        end
      end

      it "C5 full: others are served while the app has the connection, also one that was kept from request to request" do
        HttpPeer.open(server) do |peer|
          peer.write(message("GET / HTTP/1.1", "Host: a")).read_until(/hijack\? true\z/)
          peer.write(message("GET /full/later HTTP/1.1", "Host: a"))
          5.times { expect(server.get("/").status).to eq(200) }
          server.write("go", "")
          expect([peer.read_to_end, peer.ending]).to match([end_with("\r\n\r\nlater"), :closed])
        end
      ensure
        FileUtils.rm_f(File.join(server.dir, "go"))
      end

      it "C5 full: the body that the app returns is closed, and not asked for its parts" do
        exchange("/full/twice")
        eventually { journal.lines.include?("full/twice closed") }
      end

      it "C5 full: an app that raises afterwards gets no 500 into its conversation, and the worker lives" do
        expect(body_of("/full/raise")).to eq("before")
        eventually { server.log.include?("after the hijack (RuntimeError)") }
        expect_worker_alive
      end

      it "C5 full: what is left of an earlier request, or called in another thread, gets an IOError" do
        expect([server.get("/thread").body, server.get("/keep").body]).to match([/\AIOError: /, "kept"])
        expect_worker_alive
      end

      it "C5 full: comes too late when the response has begun" do
        expect(server.get("/begun").body).to match(/\Aone,IOError: /)
        expect_worker_alive
      end

      it "C5 partial: with 101 the connection goes on with another protocol" do
        bytes, = exchange("/partial/switch", "Connection: Upgrade", "Upgrade: echo", after: "said at once")
        head, rest = bytes.split("\r\n\r\n", 2)
        expect(head).to start_with("HTTP/1.1 101 Switching Protocols\r\n").and end_with("\r\nupgrade: echo\r\nConnection: Upgrade")
        expect(rest).to eq("SAID AT ONCE")
      end

      it "C5 partial: a HEAD has its headers, and no more" do
        bytes, = HttpPeer.exchange(server, message("HEAD /partial/headless HTTP/1.1", "Host: a", "Connection: close"))
        expect(bytes).to end_with("\r\n\r\n")
        eventually { journal.lines.include?("partial/headless closed") }
        expect(journal.lines).not_to include("partial/headless called")
      end

      it "C5 leaves no socket open" do
        open = -> { ProcessTable.descriptors(@worker).size }
        before = open.call
        20.times { exchange("/full/at-once") && exchange("/partial/plain") }
        eventually(20, -> { "#{before} descriptors, then #{open.call}" }) { open.call <= before }
      end
    end
  end
end

RSpec.describe "C5 a hijack that takes too long" do
  it "C5 gets no 504 into its conversation, and its worker is replaced (C3)" do
    serve(HttpApps.ru(:hijacking))
    bytes, = HttpPeer.exchange(server, message("GET /full/hang HTTP/1.1", "Host: a"))
    expect(bytes).to eq("mine")
    server.await_workers(1) { |found| found != [@worker] }
    expect(server.get("/").status).to eq(200)
  end
end
