# frozen_string_literal: true

# What the master's log says of a worker that has died: at which request it was.
RSpec.describe "the scoreboard", once: "shared memory" do
  def serve = Server.start(ru: HangingApp::RU, options: { MaxWorkers: 2 }).tap { |server| server.await_workers(2) }

  def request(server, path, **headers)
    Thread.new { HttpPeer.exchange(server, "GET #{path} HTTP/1.1\r\nHost: h\r\n#{headers.map { |pair| "#{pair.join(": ")}\r\n" }.join}\r\n") }
  end

  def line_of(server, pid) = Eventually.eventually { server.log[/^fastrack: worker \d \(pid #{pid}\) .*$/] }

  { KILL: "was killed by SIGKILL", SEGV: "was killed by SIG(ABRT|SEGV)" }.each do |signal, manner|
    it "C3: names the request, its id and its time where a worker #{manner}" do
      server = serve
      client = request(server, "/wait", "X-Request-ID": "r-1")
      pid = Eventually.eventually { server.lines_of("waiting").first }
      # What the request has taken is what the line is to tell.
      sleep 0.2
      server.signal(signal, to: pid.to_i)
      expect(line_of(server, pid)).to match(/#{manner} while serving GET \/wait for (?:0\.[2-9]|[1-9]\d*\.\d) s, request id r-1$/)
      client.value
    end
  end

  it "is a file in the master alone, since only that passes it on" do
    server = serve
    server.await_ready
    files = ->(pid) { ProcessTable.descriptors(pid).values.grep(Portable::MEMORY).size }
    found = -> { [server.master, *server.molds, *server.workers].map(&files) }
    # What has forked the workers lets go of their files a moment later.
    eventually(20, found) { found.call == [2, 0, 0, 0] }
  end

  it "names the request that has called exit!, which is an end without an error, and cuts its target where that is long" do
    server = serve
    before = server.workers
    path = "/exit/#{"0" * 400}600"
    client = request(server, path)
    pid = Eventually.eventually { (before - server.workers).first }
    expect(line_of(server, pid)).to match(/ exited while serving GET #{Regexp.escape(path[0, 204])}\S* for \d+\.\d s$/)
    expect(client.value.first).to eq("")
  end
end
