# frozen_string_literal: true

if HttpApps.rack3?
  RSpec.describe "A15 bodies of Rack 3" do
    [false, true].each do |unix|
      context(unix ? "over a unix socket" : "over TCP") do
        before(:context) { serve(HttpApps.ru(:streaming), unix: unix) }

        def body(path) = server.get(path).body

        it "A15 a callable body writes to the stream, and ends by closing it" do
          expect([body("/parts"), body("/append")]).to eq(["part 0,part 1,part 2,", "ab"])
          expect_worker_alive
        end

        it "A15 a callable body may read what the client goes on to send" do
          HttpPeer.open(server) do |peer|
            peer.write(message("GET /echo HTTP/1.1", "Host: a", "Connection: close"))
            peer.read_until(/\r\n\r\n/)
            peer.write("hello")
            expect(HttpResponse.parse(peer.read_to_end).body).to eq("HELLO")
          end
        end

        next if unix

        it "A15 the stream has what the SPEC asks of it" do
          expect(JSON.parse(body("/able"))).to eq(%w[read write << flush close close_read close_write closed?])
        end

        it "A15 a callable body is sent as it comes: no framing that it does not know of, unless the app named one" do
          expect(server.get("/parts").headers).not_to be_key("Transfer-Encoding")
          expect(server.get("/parts").headers).not_to be_key("Content-Length")
          expect(server.get("/length").headers["Content-Length"]).to eq("5")
        end

        it "A15 a callable body may hand the stream to a thread, while others are served" do
          expect(body("/thread")).to eq("from a thread")
          expect_worker_alive
        end

        it "A15 a callable body goes on though the head of its request was long, and others are served meanwhile" do
          [10_000, 16_300, 17_000, 20_000].each do |size|
            HttpPeer.open(server) do |peer|
              peer.write(message("GET /gate HTTP/1.1", "Host: a", "X: #{"y" * size}", "Connection: close"))
              peer.read_until(/before,\z/)
              expect(server.get("/").body).to eq("hello")
              server.write("go", "")
              expect(HttpResponse.parse(peer.read_to_end).body).to eq("before,after")
            end
            File.delete(File.join(server.dir, "go"))
          end
        end

        it "A15 a callable body is not called on HEAD" do
          response = talk("HEAD /parts HTTP/1.1", "Host: a")
          expect(response.status).to eq(200)
          expect_worker_alive
        end

        it "A15 a body is asked for each before call, and for to_ary, whose length is told, before each" do
          expect(body("/both")).to eq("by each")
          response = server.get("/to-ary")
          expect([response.body, response.headers["Content-Length"]]).to eq(["by to_ary", "9"])
        end
      end
    end
  end
else
  RSpec.describe "A15 bodies of Rack 3, on a Rack that does not know them" do
    before(:context) { serve(HttpApps.ru(:streaming)) }

    it "A15 a body that can only be called is none: 500, and the worker lives" do
      expect(server.get("/parts").status).to eq(500)
      expect_worker_alive
    end

    it "A15 a body with each is asked for each" do
      expect([server.get("/both").body, server.get("/to-ary").body]).to eq(["by each", "by each"])
    end
  end
end
