# frozen_string_literal: true

# A shortage of the whole system costs new clients time, and no connected client anything (D13).
RSpec.describe "D13 Connections, when the whole system lacks something", linux: "strace(1) makes calls fail", once: "descriptors and memory are the system's" do
  before { @folder = Dir.mktmpdir("fastrack-faults") }
  after { FileUtils.remove_entry(@folder) }

  # Has calls of a process fail while the block runs, such as `accept4:error=ENFILE`. The block gets what gives the seconds of the clock at
  # which calls have failed so far, by their thread.
  def failing(pid, fault)
    calls = fault[/\A[\w,]+/]
    tracer = spawn("strace", "-f", "-ff", "-ttt", "-qq", "-e", "signal=none", "-e", "trace=#{calls}", "-e", "inject=#{fault}",
                   "-o", File.join(@folder, "trace"), "-p", pid.to_s, %i[out err] => File.join(@folder, "errors"))
    eventually(20, -> { File.read(File.join(@folder, "errors")) }) { traced?(pid) }
    yield -> { failures }
  ensure
    if tracer
      Process.kill(:TERM, tracer)
      Process.wait(tracer)
    end
  end

  def traced?(pid) = Dir.glob("/proc/#{pid}/task/*/status").all? { |path| !File.read(path).match?(/^TracerPid:\s+0$/) }

  def failures = Dir.glob(File.join(@folder, "trace.*")).to_h { |path| [path, File.foreach(path).grep(/\(INJECTED\)/).map(&:to_f)] }

  # Seconds between one failed call and the next of a thread, of all threads.
  def pauses(failures) = failures.values.flat_map { |times| times.each_cons(2).map { |before, after| after - before } }
  def lines_about(what) = server.log.lines.grep(/\Afastrack: cannot #{what}: /)

  # Clients with a part of a body sent, and their digests.
  def uploads(count)
    Array.new(count) do |index|
      body = Random.new(index).bytes(400_000)
      bytes = KeptPeer.request("/body", verb: "POST", body: body)
      [peer.write(bytes[0...-1000]), bytes[-1000..], Digest::MD5.hexdigest(body)]
    end
  end

  def expect_whole(uploads)
    answers = uploads.map { |one, last, digest| [one.write(last).answer.body.split.last, digest] }
    expect(answers.map(&:first)).to eq(answers.map(&:last))
  end

  %w[ENFILE ENOMEM ENOBUFS].each do |error|
    it "accept4(2) that fails with #{error} closes nobody's connection, is tried again after half a second, and serves new clients then" do
      serve_kept
      idle = kept_peers(10)
      sending = uploads(3)
      taking = Array.new(3) { peer(slow: true).ask("/array/8000000") }
      taking.each { |one| one.anything_within?(20) }
      late = nil
      failing(@worker, "accept4:error=#{error}") do |failed|
        late = peer.ask("/pid", "Connection: close")
        eventually { failed.call.values.sum(&:size) >= 4 }
        expect(pauses(failed.call)).to all(be > 0.4)
        # Meanwhile everybody else is served as ever.
        expect(idle.map { |one| one.get("/pid").body.to_i }.uniq).to eq([@worker])
      end
      expect([late.answer.body.to_i, idle.map { |one| one.get("/pid").body.to_i }.uniq]).to eq([@worker, [@worker]])
      expect_whole(sending)
      expect(taking.map { |one| one.answer.body.bytesize }.uniq).to eq([8_000_000])
      expect(lines_about("accept").first).to match(/#{Regexp.escape(SystemCallError.new(Errno.const_get(error)::Errno).message)}/i)
      expect_worker_alive
    end
  end

  it "accept4(2) that fails while the app has a request is tried again after half a second, and costs nobody anything" do
    serve_kept
    idle = kept_peers(5)
    occupy("a")
    failing(@worker, "accept4:error=ENFILE") do |failed|
      late = peer.ask("/pid", "Connection: close")
      eventually { failed.call.values.sum(&:size) >= 3 }
      open_gate("a")
      eventually { failed.call.values.sum(&:size) >= 5 }
      expect(pauses(failed.call)).to all(be > 0.4)
      expect(idle.map { |one| one.get("/pid").body.to_i }.uniq).to eq([@worker])
      expect(late).not_to be_anything_within(0)
    end
    expect_worker_alive
  end

  it "accept4(2) without a descriptor for this process closes idle connections, and never what is being sent or received" do
    serve_kept
    sending = uploads(3)
    taking = Array.new(3) { peer(slow: true).ask("/array/8000000") }
    taking.each { |one| one.anything_within?(20) }
    idle = kept_peers(5)
    late = nil
    failing(@worker, "accept4:error=EMFILE:when=1..20") do |failed|
      late = peer.ask("/pid", "Connection: close")
      eventually { failed.call.values.sum(&:size) >= 20 }
      expect(idle.map(&:closed_without_a_word?).uniq).to eq([true])
    end
    expect(late.answer.body.to_i).to eq(@worker)
    expect_whole(sending)
    expect(taking.map { |one| one.answer.body.bytesize }.uniq).to eq([8_000_000])
    expect_worker_alive
  end

  it "recvmsg(2) on the shared queue that fails is tried again after a pause, with a line per second, and who is in the queue is served" do
    serve_kept
    one, other = kept_peers(2)
    occupy("a")
    one.ask("/pid")
    eventually { one.taken? }
    failing(@worker, "recvmsg:error=ENOMEM") do |failed|
      open_gate("a")
      eventually { failed.call.values.sum(&:size) >= 20 }
      expect(other.get("/pid").body.to_i).to eq(@worker)
      times = failed.call.values.flatten
      expect(lines_about("take a connection over").size).to be_between(1, times.max - times.min + 2)
      # The app's thread pauses; the requests that it has beside that are no reason to try more often than for each.
      expect(pauses(failed.call).sort[5..]).to all(be > 0.015)
    end
    expect(one.answer.body.to_i).to eq(@worker)
    expect_worker_alive
  end

  it "epoll_ctl(2) that cannot watch a client is tried again, and the client is served" do
    serve_kept
    late = nil
    failing(@worker, "epoll_ctl:error=ENOMEM") do |failed|
      late = Array.new(3) { peer.write("GET /pid HTTP/1.1\r\n") }
      eventually { failed.call.values.sum(&:size) >= 30 && late.all?(&:taken?) }
      expect(pauses(failed.call).sort.last(5)).to all(be > 0.015)
    end
    expect(late.map { |one| one.write("Host: a\r\n\r\n").answer.body.to_i }.uniq).to eq([@worker])
    expect(lines_about("wait for a client")).not_to be_empty
    expect_worker_alive
  end

  it "epoll_wait(2) that fails is tried again after a pause, and the worker goes on" do
    serve_kept
    idle = kept_peers(3)
    failing(@worker, "epoll_wait,epoll_pwait:error=ENOMEM") do |failed|
      idle.each { |one| one.ask("/pid") }
      eventually { failed.call.values.sum(&:size) >= 20 && !lines_about("wait").empty? }
    end
    expect(idle.map { |one| one.answer.body.to_i }.uniq).to eq([@worker])
    expect_worker_alive
  end

  it "the master's calls that fail are tried again, and neither it nor a worker ends by that" do
    serve_kept(workers: 2)
    master = server.master
    old = server.workers
    failing(master, "pselect6,select,recvfrom:error=ENOMEM:when=1..10") do |failed|
      server.signal(:HUP)
      eventually { failed.call.values.sum(&:size) >= 10 }
      server.await_workers(2) { |found| (found & old).empty? }
    end
    # None of the new workers was taken for one that is gone.
    expect([server.workers, server.log.scan(/starts Listening/).size, server.ended?]).to eq([server.await_workers(2), 1, false])
    expect(server.log).not_to match(/ENOMEM|cannot spawn|killed|has not/i)
    expect(server.get("/pid").status).to eq(200)
  end

  it "the settings of a new generation 0, and the master's answer to them, are sent again, and HUP replaces the workers" do
    serve_kept(workers: 2)
    old = server.workers
    failing(server.master, "sendmsg:error=ENOBUFS:when=1..10") do |failed|
      server.signal(:HUP)
      server.await_workers(2) { |found| (found & old).empty? }
      expect(failed.call.values.map(&:size).count(10)).to be >= 2
    end
    expect([server.log[/given up|cannot/], server.get("/pid").status]).to eq([nil, 200])
  end

  it "the settings of the first generation 0, and the master's answer to them, are read again" do
    strace = [*HttpStrace.wrapper(@folder), "-f", "-e", "trace=recvmsg", "-e", "inject=recvmsg:error=ENOMEM:when=1..5"]
    server = Server.ready(ru: Rackups::PID, fastrack: true, wrapper: strace, options: { MaxWorkers: 1 })
    failed = [server.master, *server.molds].map { |pid| failures[File.join(@folder, "trace.#{pid}")].size }
    expect([failed, server.get.status]).to eq([[5, 5], 200])
  end
end
