# frozen_string_literal: true

require "support/http_apps/filing"

RSpec.describe "C5 a body with to_path" do
  content = Random.new(1).bytes(3_000_000)

  [[false, false], [true, false], [false, true]].each do |unix, chunked|
    context [unix ? "over a unix socket" : "over TCP", *("in chunks" if chunked)].join(", ") do
      before(:context) do
        serve(HttpApps.ru(:filing), unix: unix, options: { "ChunkedTransfer" => chunked })
        server.write("small", "some text")
        File.binwrite(File.join(server.dir, "large"), content)
        File.mkfifo(File.join(server.dir, "fifo"))
      end

      it "C5 is sent whole, with its length" do
        response = server.get("/large")
        expect(Digest::SHA256.hexdigest(response.body)).to eq(Digest::SHA256.hexdigest(content))
        framing = chunked ? { "Transfer-Encoding" => "chunked" } : { "Content-Length" => "3000000" }
        framing.each { |name, value| expect(response.headers.all(name)).to eq([value]) }
        expect(server.get("/small?length=9").body).to eq("some text")
      end

      it "C5 is sent again and again on one connection, between other responses" do
        HttpPeer.open(server) do |peer|
          requests = %w[/small /large /small?length=7 /large /small].map { |path| message("GET #{path} HTTP/1.1", "Host: a") }
          peer.write("#{requests.join}#{message("GET /small HTTP/1.1", "Host: a", "Connection: close")}")
          bodies = HttpResponse.all(peer.read_to_end).map(&:body)
          expect(bodies.map(&:bytesize)).to eq([9, 3_000_000, 7, 3_000_000, 9, 9])
          expect(bodies[1] == content && bodies[3] == content).to be(true)
        end
      end

      # Requests a file with this content, and does something to it when its first bytes are there.
      def during(content)
        path = server.write("changing", "")
        File.binwrite(path, content)
        HttpPeer.open(server) do |peer|
          peer.write(message("GET /changing HTTP/1.1", "Host: a", "Connection: close"))
          peer.read_until_size(1000)
          yield path
          @bytes = peer.read_to_end
          @ending = peer.ending
        end
      end

      it "C5 never passes for whole if it shrinks meanwhile" do
        during(content * 10) { |path| File.truncate(path, 100) }
        expect(@ending).to eq(unix ? :closed : Front::CUT)
        expect { HttpResponse.parse(@bytes) }.to raise_error(HttpResponse::Malformed)
        expect_worker_alive
      end

      it "C5 is sent to a client that takes its time, while others are served" do
        HttpPeer.open(server) do |peer|
          peer.write(message("GET /large HTTP/1.1", "Host: a", "Connection: close"))
          peer.read_until_size(1000)
          expect(server.get("/small").body).to eq("some text")
          peer.read_to_end
          expect(HttpResponse.parse(peer.received).body == content).to be(true)
        end
      end

      # The rest has nothing to do with the kind of socket, and is not sent in chunks.
      next if unix || chunked

      it "C5 is asked for its parts where the file is not all of the response, or cannot be sent" do
        ["/small?length=7", "/small?part", "/none", "/fifo", "/nul", "/number", "/"].each do |path|
          expect([path, server.get(path).body]).to eq([path, "by each"])
        end
        expect(server.get("/small?coded").body).to eq("parts")
      end

      it "C5 is not sent on HEAD, nor with a status without a body" do
        expect(talk("HEAD /small?length=9 HTTP/1.1", "Host: a").headers["Content-Length"]).to eq("9")
        expect(server.get("/small?status").status).to eq(304)
        expect_worker_alive
      end

      it "C5 may go away with its file once it is closed" do
        File.binwrite(File.join(server.dir, "temporary"), content)
        expect(server.get("/temporary?removed").body == content).to be(true)
        expect(File).not_to exist(File.join(server.dir, "temporary"))
      end

      it "C5 is sent as long as it was when the response began, if it grows meanwhile" do
        during(content) { |path| File.write(path, "more", mode: "a") }
        expect([@ending, HttpResponse.parse(@bytes).body == content]).to eq([:closed, true])
      end

      it "C5 is closed once, and leaves no file open" do
        # Another example's last file may be closed yet.
        serve(HttpApps.ru(:filing))
        server.write("small", "some text")
        File.binwrite(File.join(server.dir, "large"), content)
        abandon("/large", /HTTP/)
        server.get("/small")
        talk("HEAD /small HTTP/1.1", "Host: a")
        eventually { journal.count("closed") == 3 }
        eventually { ProcessTable.descriptors(@worker).values.compact.none? { |name| name.end_with?("/large", "/small") } }
        expect(journal.count("closed")).to eq(3)
        expect_worker_alive
      end
    end
  end
end

RSpec.describe "C5 the system calls for a body with to_path", linux: "sendfile(2)" do
  it "C5 are a send of the head, which says that more comes, and sendfile for the rest" do
    folder = Dir.mktmpdir("fastrack-trace")
    serve(HttpApps.ru(:filing), wrapper: HttpStrace.wrapper(folder))
    server.write("small", "some text")
    expect(server.get("/small").body).to eq("some text")
    server.stop
    # What Ruby itself reads and writes before is none of ours. On a busy machine the helper may have received the request.
    calls = HttpStrace.new(folder, @worker).calls.drop_while { |call| !call.arguments.include?("HTTP/1.1 200 OK") }
    sent = calls.select { |call| %w[sendto sendfile write writev].include?(call.name) && !call.arguments.start_with?("2,") }
    expect([sent.map(&:name).first(2), sent[0].arguments]).to match([%w[sendto sendfile], include("MSG_MORE")])
    expect(sent[1].result).to eq("9")
  ensure
    FileUtils.remove_entry(folder)
  end
end
