# frozen_string_literal: true

# A request that ends its worker's process at once: by a crash, exit! or exec.
RSpec.describe "A request that ends its worker" do
  ru = <<~'RUBY'
    require "fiddle"
    ABORT = Fiddle::Function.new(Fiddle.dlopen(nil)["abort"], [], Fiddle::TYPE_VOID)
    ENDS = {
      "/segv" => -> { Process.kill(:SEGV, Process.pid) && sleep },
      "/null" => -> { Fiddle::Pointer.new(8, 8)[0] },
      "/native-abort" => -> { ABORT.call },
      "/exit!" => -> { exit! },
      "/thread-exit!" => -> { Thread.new { exit!(4) }; sleep },
      "/exec" => -> { exec("exit 6") },
      "/exit" => -> { exit(5) },
      "/abort" => -> { abort("enough") }
    }
    # After a part of its response, when the client has that.
    HALF = lambda { |out|
      out << "half"
      sleep 0.01 until File.exist?("go")
      File.delete("go")
    }
    run lambda { |env|
      ends = ENDS[env["PATH_INFO"]]
      parts = Enumerator.new { |out| HALF.call(out) && ends.call }
      next [200, { "content-type" => "text/plain" }, parts] if env["QUERY_STRING"] == "half"

      ends&.call
      [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
    }
  RUBY

  before(:context) { @server = Server.ready(ru: ru, options: { MaxWorkers: 1, ErrRespawnInterval: 0.05 }) }

  def worker = @server.get("/").body.to_i

  # What a death is called in the master's log.
  def ending(pid)
    eventually(10, -> { @server.log[-2000..] }) { @server.log[/^fastrack: worker \d \(pid #{pid}\) (.*)$/, 1] }
  end

  {
    "/segv" => "was killed by SIG", "/null" => "was killed by SIG", "/native-abort" => "was killed by SIGABRT",
    "/exit!" => "exited with status 1", "/thread-exit!" => "exited with status 4", "/exec" => "exited with status 6"
  }.each do |path, manner|
    it "is named in the log, and its client sees the connection end without a byte: #{path}" do
      pid = worker
      received, = HttpPeer.exchange(@server, "GET #{path} HTTP/1.1\r\nHost: h\r\n\r\n")
      expect([received, ending(pid)]).to match(["", start_with(manner).and(include(" while serving GET #{path} for "))])
      expect(@server.get("/").status).to eq(200)
    end
  end

  %w[/segv /exit!].each do |path|
    it "is cut off by a reset where a part of the response has left: #{path}" do
      HttpPeer.open(@server) do |peer|
        peer.write("GET #{path}?half HTTP/1.0\r\n\r\n").read_until(/half\z/)
        @server.write("go", "")
        expect([peer.read_to_end, peer.ending]).to match([end_with("half"), :reset])
      end
    end
  end

  { "/exit" => "exited with status 5", "/abort" => "exited with status 1" }.each do |path, manner|
    it "by an exception is answered with 500: #{path}" do
      pid = worker
      expect([@server.get(path).status, ending(pid)]).to match([500, start_with(manner)])
    end
  end

  it "is a 502 for the client of a proxy", once: "what nginx sees" do
    nginx = HttpNginx.new("127.0.0.1:#{@server.port}")
    bytes, = HttpPeer.exchange(nginx, "GET /segv HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    expect(HttpResponse.parse(bytes).status).to eq(502)
  ensure
    nginx&.stop
  end
end
