# frozen_string_literal: true

require "io/console"
require "io/nonblock"
require "pty"
require "support/in_master"

RSpec.describe "Faults", once: "processes, signals and files" do
  it "B-faults an app that fails to boot is loaded once, and ends the server with its error and status 1, with nothing bound" do
    server = Server.fail_to_start(ru: %(File.write("loads", "load\\n", mode: "a")\nraise "no database"), unix: true)
    expect([server.status.exitstatus, server.log.lines.grep(/no database/).size, server.lines_of("loads").size]).to eq([1, 1, 1])
    expect(server.file?("server.sock")).to be(false)
  end

  { "rackup" => false, "fastrack" => true }.each do |command, fastrack|
    it "B-faults TERM while #{command} loads the app ends the process at once" do
      server = Server.launch(ru: "File.write('loading', Process.pid.to_s)\nsleep", fastrack: fastrack, options: { Path: "app.sock" })
      eventually { server.lines_of("loading").any? }
      expect(server.stop.termsig).to eq(Signal.list.fetch("TERM"))
      # What loads the app for `fastrack` sees the end of its master.
      eventually { server.processes.empty? }
      expect(server.log).not_to match(/[Ee]rror|\.rb:\d/)
    end
  end

  it "B-faults something that is no app is one line and status 1" do
    server = Server.fail_to_start(ru: "run(:nothing)", rackup: false)
    expect([server.log, server.status.exitstatus]).to eq(["fastrack: the app does not respond to call: :nothing\n", 1])
  end

  # Where nobody may make files, root included.
  { "in no folder" => ["no/app.sock", "no such file or directory"], "that is a file" => ["config.ru", "it exists and is not a socket"],
    "that is too long" => ["a" * 200, "the path is too long for a unix socket"],
    "where nothing may be written" => ["/proc/app.sock", "[a-z ]+"] }.each do |what, (path, reason)|
    it "B-faults a Path #{what} is one line and status 1" do
      server = Server.fail_to_start(ru: Rackups::PID, options: { Path: path })
      expect([server.log, server.status.exitstatus]).to match([/\Afastrack: cannot listen on #{path}: #{reason}\n\z/, 1])
      expect(server.lines_of("config.ru").join("\n")).to eq(Rackups::PID.chomp)
    end
  end

  describe "a worker that dies at boot again and again" do
    # What after_fork does, and what the log says of it.
    { "raises" => ["raise 'no database'", /worker \d failed: .*no database \(RuntimeError\)/],
      "exits" => ["exit 3", /worker \d \(pid \d+\) exited with status 3/],
      "exits with status 0" => ["exit 0", /worker \d \(pid \d+\) exited before it was ready/],
      "exits with status 0 and at once" => ["exit!(0)", /worker \d \(pid \d+\) exited before it was ready/],
      "is killed" => ["Process.kill(:KILL, $$)", /worker \d \(pid \d+\) was killed by SIGKILL/] }.each do |what, (code, line)|
      it "B-faults is spaced by ErrRespawnInterval when it #{what}" do
        began = now
        # However late this example looks, the server has not given up.
        patient = InMaster.change("Fastrack::Workers", "remove_const(:ATTEMPTS) && const_set(:ATTEMPTS, 10_000)")
        server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 2, ErrRespawnInterval: 0.3 }, **patient, config: <<~RUBY)
          before_fork { File.write("forks", ".", mode: "a") }
          after_fork { #{code} }
        RUBY
        # The first two are forked before either can have died; then at most two for each interval.
        eventually { server.lines_of("forks").join.size >= 9 }
        expect(now - began).to be >= 3 * 0.3
        expect([server.log, server.stop.exitstatus]).to match([line, 0])
      end
    end
  end

  # A pipe, socket or terminal that takes no more. Its own flags block, as those that a shell makes.
  def fill(pair)
    pair.last.tap do |writer|
      nil until writer.write_nonblock("." * 512, exception: false) == :wait_writable
      nil until writer.write_nonblock(".", exception: false) == :wait_writable
      writer.nonblock = false
    end
  end

  { "a pipe" => -> { IO.pipe }, "a socket" => -> { UNIXSocket.pair }, "a terminal" => -> { PTY.open.tap { |pair| pair.last.raw! } } }
    .each do |what, open|
    it "D7 logs that nobody reads lose lines and nothing else, where they are #{what}" do
      reader, writer = pair = open.call
      server = Server.launch(ru: <<~RUBY, options: { MaxWorkers: 2, MaxRequestPerChild: 0, ErrRespawnInterval: 0.1 }, inherit: { 9 => writer }, wrapper: %w[sh -c] + ['exec "$@" >&9 2>&9', "sh"])
        run ->(env) { env["PATH_INFO"] == "/raise" ? raise("no" * 5000) : [200, {}, [Process.pid.to_s]] }
      RUBY
      # Somebody reads until the server is ready.
      reading = Thread.new { loop { File.write(server.log_path, reader.readpartial(65_536), mode: "a") } }
      server.await_ready
      reading.kill.join
      before = server.await_workers(2)
      fill(pair)
      fresh = server.renew(before)
      server.signal(:KILL, to: fresh.first)
      server.await_workers(2) { |found| !found.include?(fresh.first) }
      3.times { expect(server.get("/raise").status).to eq(500) }
      eventually { reader.read_nonblock(65_536, exception: false) == :wait_readable }
      server.get("/raise")
      seen = +""
      eventually(20, -> { seen }) { (seen << reader.readpartial(65_536)).include?("nono") }
      fill(pair)
      expect(server.stop.exitstatus).to eq(0)
    ensure
      [reader, writer].compact.each(&:close)
    end
  end

  it "B-faults no process to be had for a worker is logged, spaced, and tried again" do
    server = Server.ready(ru: Rackups::PID, options: { MaxWorkers: 1, ErrRespawnInterval: 0.1 }, config: <<~RUBY)
      Process.singleton_class.prepend(Module.new do
        def _fork = File.exist?("no_fork") ? File.write("tries", "fork\n", mode: "a") && raise(Errno::EAGAIN, "fork(2)") : super
      end)
    RUBY
    before = server.await_workers(1)
    server.write("no_fork", "")
    server.signal(:KILL, to: before.first)
    server.await_log(/cannot spawn worker 0: .*Resource temporarily unavailable/)
    Eventually.eventually { server.lines_of("tries").size >= 3 }
    server.remove("no_fork")
    expect(server.get.status).to eq(200)
  end

  it "A9 a worker that is killed after it has served for a while, and is idle, is replaced at once, and no client notices" do
    # To the master each worker was spawned ten minutes ago.
    old = InMaster.change("Fastrack::WorkerHandle", "prepend(Module.new { def spawned_at = super - 600 })")
    server = Server.ready(ru: Rackups::PID, options: { MaxWorkers: 1, ErrRespawnInterval: 300, WorkerBootTimeout: 0 }, **old)
    before = server.await_workers(1)
    server.signal(:KILL, to: before.first)
    expect(server.get.status).to eq(200)
    server.await_others(before)
  end

  it "B-faults an app that waits for all children, the workers included, costs no more than their statuses" do
    server = Server.start(ru: <<~RUBY, options: { MaxWorkers: 2, ErrRespawnInterval: 0.1 })
      Thread.new { loop { Process.wait rescue sleep 0.001 } }
      #{Rackups::PID}
    RUBY
    unknown = -> { server.log.scan(/worker \d \(pid \d+\) exited; its status is unknown/).size }
    # The two of them race for each status.
    eventually(20, -> { server.log }) do
      before = server.await_workers(2)
      server.signal(:KILL, to: before.first)
      server.await_workers(2) { |found| found != before }
      unknown.call.positive?
    end
    expect([server.get.status, server.stop.exitstatus]).to eq([200, 0])
  end

  it "B-faults a log that nobody reads any more stops nothing, and an app that fails gets its 500 all the same" do
    reader, writer = IO.pipe
    server = Server.start(ru: 'run ->(env) { env["PATH_INFO"] == "/raise" ? raise("no") : [200, {}, [Process.pid.to_s]] }',
                          inherit: { 7 => writer }, options: { MaxWorkers: 1, ErrRespawnInterval: 0.1 },
                          config: "$stderr.reopen(IO.for_fd(7, autoclose: false))\n$stderr.sync = true")
    before = server.await_workers(1)
    [reader, writer].each(&:close)
    server.signal(:KILL, to: before.first)
    after = server.await_others(before)
    expect([Array.new(3) { server.get("/raise").status }, server.get.body.to_i]).to eq([[500] * 3, after.first])
  end
end
