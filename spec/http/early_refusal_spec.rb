# frozen_string_literal: true

require "open3"
require "tempfile"

# A client that still sends its request when the response comes reads that response: the server reads on, and throws away.
RSpec.describe "D18 a refusal that comes while the client sends", once: "bytes on the wire" do
  size = 50_000_000

  def upload(size, path = "/") = "POST #{path} HTTP/1.1\r\nHost: a\r\nContent-Length: #{size}\r\n\r\n"

  # The status that a client reads which first sends all it has to say.
  def status_after(head, size)
    HttpPeer.open(server) do |peer|
      peer.write!(head)
      (size / 100_000).times { peer.write!("u" * 100_000) }
      response = HttpResponse.parse(peer.read_to_end)
      expect(peer.ending).to eq(:closed)
      response.status
    end
  end

  def curl(*arguments) = Open3.capture2e("curl", "-sS", "-o", File::NULL, "-w", "%{http_code}", "--max-time", "60", "-H", "Expect:", *arguments)

  def with_file(size)
    Tempfile.create("upload") do |file|
      file.truncate(size)
      yield "@#{file.path}"
    end
  end

  context "of a body that is too large" do
    before(:context) { serve(HttpApps.ru(:echo), options: { "MaxBodySize" => 1_000_000 }) }

    it "D18 is read by a client that sends 50 MB first" do
      expect(status_after(upload(size), size)).to eq(413)
      expect(status_after("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", size)).to eq(400)
      expect_worker_alive
    end

    it "D18 is read by curl" do
      with_file(size) do |file|
        output, status = curl("--data-binary", file, "http://#{server.host}:#{server.port}/")
        expect([output, status.exitstatus]).to eq(["413", 0])
      end
    end
  end

  context "of the app's, which does not read the body" do
    before(:context) do
      app = 'run ->(env) { env["PATH_INFO"] == "/raise" ? raise("no") : [env["PATH_INFO"][1..].to_i, { "content-length" => "2" }, ["no"]] }'
      serve(app, options: { "StreamBody" => true })
    end

    [401, 403].each do |status|
      it "D18 is read if it is a #{status} with StreamBody" do
        expect(status_after(upload(size, "/#{status}"), size)).to eq(status)
      end
    end

    it "D18 is read if it is the server's 500 with StreamBody" do
      expect(status_after(upload(size, "/raise"), size)).to eq(500)
    end
  end

  context "behind nginx" do
    before(:context) { serve(HttpApps.ru(:echo), unix: true, options: { "MaxBodySize" => 1_000_000 }) }

    { "as the manual has it" => "", "unbuffered" => "proxy_request_buffering off; proxy_http_version 1.1;" }.each do |what, settings|
      it "D18 is read by each of many clients, #{what}" do
        nginx = HttpNginx.new("unix:#{server.path}", settings: settings)
        with_file(20_000_000) do |file|
          clients = Array.new(8) { Thread.new { curl("--unix-socket", nginx.path, "--data-binary", file, "http://a/").first } }
          expect(clients.map(&:value)).to eq(["413"] * 8)
        end
      ensure
        nginx&.stop
      end
    end
  end
end
