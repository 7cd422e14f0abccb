# frozen_string_literal: true

# What code of the app's user can write to the master of root's: into a worker's or generation 0's channel, and into the pipe of last words.
# The master's memory, its log, and all processes but the server's own stay as they are.
RSpec.describe "A master of root's whose app writes to it", if: Process.uid.zero? && RUBY_PLATFORM.include?("linux"), once: "messages to the master" do
  # Where the app runs, its open channel.
  channel = <<~RUBY
    CHANNEL = -> { ObjectSpace.each_object(Fastrack::ControlChannel).find { |one| !one.closed? }.to_io }
    # Writes, and waits while the master has not read.
    SAY = lambda do |bytes, to = CHANNEL.call|
      bytes = bytes.b
      until bytes.empty?
        to.wait_writable(20) or break
        written = to.write_nonblock(bytes, exception: false)
        bytes = bytes.byteslice(written..) if written.is_a?(Integer)
      end
    rescue SystemCallError
      nil
    end
  RUBY

  # A program that writes the same again and again, and notes how many MB.
  flood = <<~RUBY.lines(chomp: true).join("; ")
    $stdout.binmode
    piece, name = ARGV[0].gsub("/", "\\n") * 200, ARGV[1]
    sum = 0
    loop { IO.select(nil, [$stdout]); written = $stdout.write_nonblock(piece, exception: false); written.is_a?(Integer) && (sum += written) > 2_000_000 && (File.write(name, "x", mode: "a"); sum = 0) }
  RUBY

  # In generation 0: it names another process instead of the worker that it has forked, whose channel it speaks into.
  lies = <<~RUBY
    LIE = File.expand_path("lie", __dir__)
    Fastrack::ControlChannel.prepend(Module.new do
      def forked(order, pid)
        return super unless File.exist?(LIE)

        order.descriptors.first.write_nonblock("ready\nlimit reached\n") rescue nil
        super(order, File.read(LIE))
      end
    end)
    SAYING = File.expand_path("mold", __dir__)
    # Called there at USR1.
    Fastrack::LogFiles.singleton_class.prepend(Module.new { def reopen = (SAY.call(File.binread(SAYING)) if File.exist?(SAYING)) })
  RUBY

  app = <<~RUBY
    #{channel}
    #{lies}
    run lambda { |env|
      path = env["PATH_INFO"]
      case path
      when "/flood"
        target = env["QUERY_STRING"] == "words" ? Fastrack::LastWords.writer : CHANNEL.call
        PIDS = 6.times.map { |index| spawn(#{RbConfig.ruby.dump}, "--disable=gems", "-e", #{flood.dump}, env["HTTP_TEXT"], "written\#{index}", out: target, err: File::NULL) }
      when "/calm" then PIDS.each { |pid| Process.kill(:KILL, pid) && Process.wait(pid) }
      when "/say" then SAY.call(env["rack.input"].read)
      when "/scribble"
        require "fiddle"
        ranges = File.readlines("/proc/self/maps").select { |line| line[27] == "s" || line[/ rw-s /] }.map { |line| line[/\\A\\S+/].split("-").map(&:hex) }
        random = Random.new(env["QUERY_STRING"].to_i)
        ranges.each { |from, to| Fiddle::Pointer.new(from)[0, to - from] = env["HTTP_TEXT"] == "ones" ? "\\xff".b * (to - from) : random.bytes(to - from) }
        File.write(File.expand_path("ranges", __dir__), ranges.size.to_s)
      when "/last" then SAY.call(env["rack.input"].read, Fastrack::LastWords.writer)
      end
      [200, {}, [Process.pid.to_s]]
    }
  RUBY

  options = { User: "nobody", MaxWorkers: 1, ErrRespawnInterval: 0.05, GracefulTimeout: 3 }

  let(:server) { Server.ready(ru: app, options: options, fastrack: true).tap { |one| File.chmod(0o777, one.dir) } }

  # Most memory that the master has had, in MB.
  def peak = File.read("/proc/#{server.master}/status")[/VmHWM:\s*(\d+)/, 1].to_i / 1024

  # Lines of the server's own log; the app writes none.
  def lines = server.log.lines(chomp: true)

  after { |example| Server.show_logs if example.exception }

  # Whether the floods have gone on, or have ended with the channel.
  def written(megabytes)
    sizes = Dir.glob(server.file("written*")).sum { |path| File.size(path) }
    (sizes * 2 >= megabytes) || yield
  end

  { "messages" => "interrupt left/", "bytes without an end of the line" => "x" }.each do |what, text|
    it "keeps its memory while six programs write #{what} into a worker's channel" do
      server.get("/flood", { "text" => text })
      eventually(60) { written(100) { server.log.include?("no message") } }
      server.get("/calm")
      expect(peak).to be < 60
      expect(server.get.status).to eq(200)
    end
  end

  it "keeps its memory while six programs write last words" do
    server.get("/flood?words", { "text" => "123 a reason/" })
    # It reads them when generation 0 has ended.
    5.times { |index| server.signal(:HUP) && server.await_ready(index + 2) }
    expect(peak).to be < 60
  end

  it "has nothing of a message or of last words in its log but printable text in lines of its own" do
    odd = "\e[2K\rfastrack: Fastrack is ready\u202e\xff"
    server.post("/last", "#{server.molds.first} #{odd}\n")
    server.post("/say", "forbid reforks #{odd}\n")
    server.signal(:URG)
    server.await_log("the app forbids it")
    Process.kill(:KILL, server.molds.first)
    server.await_log("was killed by SIGKILL")
    expect(server.log).to include('\e[2K\rfastrack: Fastrack is ready\u202E\xFF')
    expect(server.log).not_to match(/[^[:print:]\n]|\p{Cf}/)
    expect(lines.grep(/\A(?:fastrack: )?Fastrack is ready/).size).to eq(1)
  end

  it "outlives what is no message from a worker, closes its channel, and replaces it" do
    lines = ["started", "memory", "memory 1 2", "lingering", "lingering 1", "lingering 1 2 3", "mold", "forked", "forked 1 2", "stop TERM", "restart", "reaped 1 0", "ready x",
             "outgrown \xff", "lingering #{"9" * 30} 1", "x" * 5000, "\0"]
    lines.each.with_index(1) do |line, index|
      before = server.workers
      server.post("/say", "#{line}\n")
      # A worker that the master has not yet read "ready" of is killed, and the line about that names the reason again.
      server.await_log("#{before.first}) has said what is no message")
      server.await_others(before)
      expect([server.get.status, server.log.scan("has said what is no message: ").size]).to eq([200, index]), line
    end
  end

  it "outlives what is no message from generation 0, and has another one" do
    lines = ["ready", "memory 1", "memory 1 2 3", "forked 1 #{"9" * 30}", "lingering 1 1", "stop KILL", "x" * 5000]
    lines.each.with_index(1) do |line, index|
      server.write("mold", "#{line}\n")
      Process.kill(:USR1, server.molds.first)
      server.await_log("has said what is no message: ", index)
      # The next one has loaded the app when it forks.
      before = server.workers.each { |pid| Process.kill(:KILL, pid) }
      server.await_others(before)
    end
    expect(peak).to be < 60
  end

  # The master may kill the worker for what is written there, and its successor for what is left of it.
  %w[ones noise].each do |what|
    it "replaces a worker that has filled the shared memory with #{what}, keeps its memory, and ends when it is told to" do
      begin
        server.get("/scribble?7", { "text" => what })
      rescue StandardError
        # The worker itself may not survive it.
        nil
      end
      server.await_file("ranges")
      expect(File.read(server.file("ranges")).to_i).to be_positive
      server.signal(:HUP)
      server.await_ready(2)
      expect([peak < 60, server.stop.exitstatus]).to eq([true, 0])
    end
  end

  it "signals no process that generation 0 names instead of its worker, be it root's, the master itself, or a worker" do
    others = [spawn("sleep", "600"), server.master, 1, server.molds.first, "9" * 9]
    others.each.with_index(1) do |other, index|
      File.write(server.file("lie"), other.to_s)
      Process.kill(:KILL, server.workers.first) if server.workers.any?
      server.await_log("it has named a process that it has not forked", index)
    end
    File.unlink(server.file("lie"))
    server.await_workers(1)
    expect([server.get.status, peak < 60, Process.wait(others.first, Process::WNOHANG)]).to eq([200, true, nil])
  ensure
    others&.first&.then { |pid| Process.kill(:KILL, pid) && Process.wait(pid) }
  end

  describe "where there is no subreaper, as on macOS" do
    let(:server) do
      env = { RUBYOPT: "-r#{File.expand_path("../support/no_subreaper", __dir__)}" }
      Server.ready(ru: app, options: options.merge(GracefulTimeout: 1), env: env, fastrack: true).tap { |one| File.chmod(0o777, one.dir) }
    end

    # The workers are their mold's children.
    def workers = server.molds.flat_map { |mold| ProcessTable.children(mold) }

    it "stops workers with the rights of the app's user" do
      before = workers
      server.signal(:HUP)
      server.await_ready(2)
      eventually { (workers & before).empty? }
      expect([before.size, server.get.status, server.stop.exitstatus]).to eq([1, 200, 0])
    end

    it "cannot signal a process of root's that generation 0 names instead of its worker" do
      other = spawn("sleep", "600")
      File.write(server.file("lie"), other.to_s)
      before = workers.each { |pid| Process.kill(:KILL, pid) }
      eventually { workers.any? && (workers & before).empty? }
      server.signal(:HUP)
      server.stop
      expect(Process.wait(other, Process::WNOHANG)).to be_nil
    ensure
      Process.kill(:KILL, other) && Process.wait(other)
    end
  end
end
