# frozen_string_literal: true

require "support/streams_app"

RSpec.describe "A worker that was replaced, with streams or sockets that the app has taken over" do
  include StreamsApp

  # The pids of the workers, by their states.
  def states = monitor.status.fetch("workers").group_by { |one| one["state"] }.transform_values { |ones| ones.map { |one| one["pid"] } }

  # These are the workers that linger, and as many serve as there are to be.
  def await_lingering(*pids, serving: 1)
    eventually(20, -> { "#{states} instead of #{pids}; log:\n#{server.log}" }) do
      found = states
      found.fetch("lingering", []).sort == pids.sort && found.fetch("idle", []).size == serving && found.size == (pids.empty? ? 1 : 2)
    end
  end

  def hup(old = server.workers.last)
    server.signal(:HUP)
    await_lingering(old)
  end

  # One worker with clients that linger by now.
  #
  # @return [Array<HttpPeer>]
  def lingering(**options)
    serve_streams(threads: 2, options: options)
    @old = server.workers.first
    clients = yield
    server.signal(:HUP)
    # A short Linger may be over at the next look at the states.
    server.await_log("(pid #{@old}) lingers")
    clients
  end

  def expect_no_kill = expect(server.log).not_to match(/kill/)

  def expect_to_go_on(stream, socket, name)
    server.write("event.#{name}", "")
    stream.read_until(/data: #{name}\n/)
    expect([echo(socket, "still #{name}"), server.get("/pid").body.to_i == @old]).to eq([@old, false])
  end

  def expect_to_end_with(stream, socket)
    server.write("end", "")
    expect(stream.read_until(/last/)).to include("data: last")
    expect(echo(socket, "alone")).to eq(@old)
    socket.close
    eventually { !server.workers.include?(@old) }
    expect_no_kill
  end

  {
    "HUP" => [{}, -> { server.signal(:HUP) }],
    "MaxRequestPerChild" => [{ MaxRequestPerChild: 5, MinRequestPerChild: 5 }, -> { 3.times { server.get("/pid") } }],
    "TERM to the worker" => [{}, -> { server.signal(:TERM, to: @old) }]
  }.each do |name, (options, act)|
    it "goes on until they end, while its successor serves (#{name})" do
      serve_streams(threads: 2, options: options)
      @old = server.workers.first
      stream, socket = stream("/each/events?long", streaming: 1), socket()
      instance_exec(&act)
      await_lingering(@old)
      expect_to_go_on(stream, socket, 1)
      expect_to_end_with(stream, socket)
    end
  end

  it "also with one thread, whose worker has sockets only" do
    serve_streams(threads: 1)
    @old = server.workers.first
    one = socket
    hup
    server.signal(:USR1, to: @old)
    expect([echo(one, "still"), server.get("/pid").body.to_i == @old]).to eq([@old, false])
    one.close
    eventually { server.workers.size == 1 && !server.workers.include?(@old) }
    expect_no_kill
  end

  it "says so in the log, by numbers" do
    lingering { [stream("/each/events?long", streaming: 1), socket, socket] }
    server.await_log("worker 0 (pid #{@old}) lingers for 1 stream and 2 sockets")
  end

  it "ends them after Linger, and not before: event streams as if they had come to their end, sockets by a close, one after the other" do
    patience = GcMode.patient(1)
    began = Eventually.now
    *streams, silent, sockets = lingering(Linger: 2, GracefulTimeout: 10 * patience) do
      kinds = StreamsApp::KINDS.map.with_index { |kind, number| stream("/#{kind}/silent?#{kind}", streaming: number + 1) }
      [*kinds, stream("/each/stubborn?stubborn"), Array.new(10) { socket }]
    end
    streams.first.read_until(/\r\n0\r\n\r\n\z/)
    expect(Eventually.now - began).to be >= 2
    silent.read_until(/data: more|\r\n0\r\n\r\n\z/)
    streams.drop(1).each(&:read_to_end)
    expect(streams.drop(1).map(&:ending)).to all(eq(:closed))
    sockets.first.read_to_end
    expect([sockets.first.ending, echo(sockets.last, "last")]).to eq([:closed, @old])
    sockets.each(&:read_to_end)
    eventually { !server.workers.include?(@old) }
    ended = server.lines_of("ended")
    expect(ended.grep_v(/stubborn/)).to match_array(StreamsApp::KINDS.map { |kind| "#{kind} Fastrack::WorkerRetired true false" })
    expect(server.lines_of("closed")).to include(*StreamsApp::KINDS)
    expect(server.lines_of("left").size).to eq(10)
    expect([server.log, server.get("/pid").body.to_i == @old]).to match([/\(pid #{@old}\) ends its streams and sockets: 2 s are over \(Linger\)$/, false])
    expect_no_kill
  end

  it "ends a stream in order whose app rescues the exception, with the next part" do
    peer, = lingering(Linger: 1) { [stream("/each/stubborn?one", streaming: 1)] }
    expect(peer.read_until(/\r\n0\r\n\r\n\z/)).not_to include("more")
    eventually { server.lines_of("closed") == ["one"] }
  end

  it "is killed where its app does not let it end them" do
    peer, = lingering(Linger: 1, GracefulTimeout: 1) { [stream("/each/deaf?one", streaming: 1)] }
    peer.read_to_end
    server.await_log("(pid #{@old}) has not ended its streams and sockets within 1 s: killing it")
    expect(server.get("/pid").status).to eq(200)
  end

  it "is the first to end them where more linger than there are workers" do
    first, = lingering { [socket] }
    second = socket
    other = server.workers.find { |pid| pid != @old }
    server.signal(:HUP)
    first.read_to_end
    await_lingering(other)
    expect([first.ending, echo(second, "there"), server.log]).to match([:closed, other, /\(pid #{@old}\) ends its streams and sockets: more than 1 linger$/])
  end

  it "does not outlive its streams, and leaves the sockets, where Linger is 0" do
    serve_streams(threads: 2, options: { Linger: 0 })
    @old = server.workers.first
    peer, one = stream("/each/events?long", streaming: 1), socket
    server.signal(:HUP)
    eventually { server.get("/pid").body.to_i != @old }
    expect(echo(one, "there")).to eq(@old)
    server.write("end", "")
    expect([peer.read_until(/last/), one.read_to_end, server.log]).to match([/last/, /there/, /\A(?!.*linger)/m])
    eventually { !server.workers.include?(@old) }
  end

  it "leaves its sockets when the server stops for good (TERM), before and after it has begun to linger", once: "the master's part" do
    one, = lingering(GracefulTimeout: 600) { [socket] }
    other = socket
    expect(server.stop).to be_success
    expect([one, other].map { |peer| peer.read_to_end && peer.ending }).to eq(%i[closed closed])
  end

  it "keeps its sockets for most of GracefulTimeout when another server takes over (QUIT), and then closes them", once: "the master's part" do
    serve_streams(threads: 2, options: { GracefulTimeout: 8 })
    @old = server.workers.first
    one = socket
    server.signal(:QUIT)
    eventually { server.refused? }
    expect(echo(one, "there")).to eq(@old)
    one.read_to_end
    expect([one.ending, server.wait.exitstatus]).to eq([:closed, 0])
    expect_no_kill
  end

  it "ends its streams in order before the server stops" do
    serve_streams(threads: 2, options: { GracefulTimeout: 8 })
    peer = stream("/each/silent?one", streaming: 1)
    server.signal(:TERM)
    peer.read_until(/\r\n0\r\n\r\n\z/)
    expect([server.wait.exitstatus, server.lines_of("ended")]).to eq([0, ["one Fastrack::WorkerRetired true false"]])
    expect_no_kill
  end

  it "keeps the old master alive after USR2, until its clients leave", once: "the master's part" do
    serve_streams(threads: 2, options: { GracefulTimeout: 600 })
    @old = server.workers.first
    old_master = server.master
    peer, one = stream("/each/events?long", streaming: 1), socket
    server.signal(:USR2)
    eventually(40) { server.get("/pid").body.to_i != @old }
    expect_to_go_on(peer, one, 1)
    server.write("end", "")
    peer.read_until(/last/)
    one.close
    eventually(20) { [@old, old_master].none? { |pid| ProcessTable.alive?(pid) } }
    expect_no_kill
  end

  it "ends when its master is killed", once: "the master's part" do
    one, = lingering { [socket] }
    server.signal(:KILL, to: server.master)
    one.read_to_end
    eventually { !ProcessTable.alive?(@old) }
  end

  it "goes on through a refork, of which it is not the mold" do
    serve_streams(threads: 2, workers: 2, options: { MaxRequestPerChild: 0 })
    peer = KeptPeer.new(server)
    20.times { peer.get("/pid") }
    peer.write("GET /each/events?long HTTP/1.1\r\nHost: a\r\n\r\n").read_until(/data: first/)
    @old = eventually { monitor.status["workers"].find { |worker| worker["streams"] == 1 } }["pid"]
    eventually { Array.new(4) { Thread.new { server.get("/slow-pid").body.to_i } }.map(&:value).any? { |pid| pid != @old } }
    server.signal(:URG)
    eventually(60) { server.get("/pid") && server.log.include?("refork: generation 2 from worker") }
    await_lingering(@old, serving: 2)
    server.write("event.1", "")
    peer.read_until(/data: 1\n/)
    expect([server.molds, server.log]).to match([satisfy { |molds| !molds.include?(@old) }, /\A(?!.*given up)/m])
    server.write("end", "")
    expect(peer.read_until(/last/)).to include("last")
    await_lingering(serving: 2)
  end
end

RSpec.describe "200 event streams and 200 sockets" do
  include StreamsApp

  it "outlive 3 HUPs and 20 recyclings, without a break", alone: "400 clients" do
    limits = ->(requests) { "max_request_per_child #{requests}\nmin_request_per_child #{requests}\n" }
    serve_streams(threads: 5, workers: 2, config: limits.call(0))
    streams = Array.new(200) { |number| stream("/each/events?#{number}") }
    sockets = Array.new(200) { |number| socket(number) }
    owners = sockets.map { |one| echo(one, "first") }
    await_streams(200)
    server.reload(limits.call(20))
    3.times do |round|
      before = monitor.status.dig("restarts", "request_limit")
      eventually(60) { server.get("/pid") && monitor.status.dig("restarts", "request_limit") >= before + (round.zero? ? 20 : 0) }
      server.write("event.#{round + 1}", "")
      streams.each { |one| one.read_until(/data: #{round + 1}\n/) }
      expect(sockets.map { |one| echo(one, "round #{round}") }).to eq(owners)
      server.signal(:HUP) if round < 2
    end
    server.write("end", "")
    streams.each { |one| one.read_until(/last.*\r\n0\r\n\r\n\z/m) }
    expect([sockets.map { |one| echo(one, "alone") }, monitor.status["workers"].count { |one| one["state"] == "lingering" }]).to match([owners, be <= 2])
    sockets.each(&:close)
    eventually { (server.workers & owners).empty? }
    expect(server.log).not_to match(/kill|ends its streams/)
  end
end
