# frozen_string_literal: true

require_relative "../../lib/fastrack/log"

RSpec.describe "Log files", once: "descriptors and signals, which are the same in every Ruby" do
  include Folder
  include ReexecHelpers

  # Logs to a file as Ruby's Logger does, to one that is no log, and to stdout.
  let(:logging_app) { <<~'RUBY' }
    require "logger"
    here = File.dirname(File.expand_path(__FILE__))
    logger = Logger.new(File.join(here, "app.log"))
    $data = File.open(File.join(here, "data"), "a")
    run lambda { |env|
      word = env["QUERY_STRING"]
      logger.info(word)
      $data.write(word) && $data.flush
      puts "stdout #{word}"
      $stderr.puts "stderr #{word}"
      [200, {}, [Process.pid.to_s]]
    }
  RUBY

  # As logrotate does: moves the files away, and sends the signal.
  def rotate(server, files, to: server.pid)
    listening = server.listening
    files.each { |file| File.rename(server.file(file), server.file("#{file}.1")) }
    server.signal(:USR1, to: to)
    eventually { files.all? { |file| server.file?(file) } }
    # Where the harness looks for it.
    File.write(server.log_path, "#{listening}\n", mode: "a") if files.include?("server.log")
  end

  # Whether all of the server's processes have the file open, and none its predecessor.
  def all_changed?(server, file)
    [server.pid, *server.workers].all? do |pid|
      open = ProcessTable.descriptors(pid).values.compact
      open.include?(server.file(file)) && !open.include?(server.file("#{file}.1"))
    end
  end

  it "C1 a log keeps its encodings" do
    log = File.open(File.join(@dir, "log"), "a:UTF-16LE:UTF-8").tap { |file| file.sync = true }
    File.rename(log.path, "#{log.path}.1")
    Fastrack::LogFiles.reopen
    log.write("a")
    expect(File.binread(log.path)).to eq("a\0")
    log.close
  end

  it "C1 USR1 opens logs anew in master and workers, stdout and stderr too, and no client notices" do
    server = start(ru: logging_app)
    unnoticed(server) do
      server.get("/?before")
      rotate(server, %w[app.log server.log])
      eventually { all_changed?(server, "app.log") && all_changed?(server, "server.log") }
      6.times { server.get("/?after") }
    end
    text = ->(file) { server.lines_of(file).join("\n") }
    expect([text.call("app.log.1"), text.call("server.log.1")]).to all(include("before"))
    expect([text.call("app.log.1"), text.call("server.log.1")].join).not_to include("after")
    expect(text.call("app.log").scan("after").size).to eq(6)
    expect(text.call("server.log")).to include("stdout after", "stderr after")
  end

  it "C1 USR1 disturbs no thread that is writing to a log" do
    server = start(ru: <<~'RUBY', options: { MaxWorkers: 1, MaxThreads: 5 })
      LOG = File.open(File.join(File.dirname(File.expand_path(__FILE__)), "app.log"), "a").tap { |file| file.sync = true }
      run lambda { |_env|
        300.times { LOG.write("#{"x" * 8_000}\n") }
        [200, {}, ["ok"]]
      }
    RUBY
    files = 15
    clients = Array.new(5) { Thread.new { Array.new(files) { server.get("/").body } } }
    files.times { rotate(server, %w[app.log]) }
    expect(clients.flat_map(&:value)).to all(eq("ok"))
  end

  it "C1 USR1 leaves files alone that are no logs, or have not been moved" do
    server = start(ru: logging_app)
    server.get("/?one")
    inodes = -> { ProcessTable.descriptors(server.workers.first).values.grep(/app\.log|data/).sort }
    before = inodes.call
    FileUtils.mv(server.file("data"), server.file("data.1"))
    server.signal(:USR1)
    rotate(server, %w[app.log])
    eventually { all_changed?(server, "app.log") }
    expect([File.exist?(server.file("data")), inodes.call.size]).to eq([false, before.size])
  end

  it "C1 USR1 to a worker has that one change over alone" do
    server = start(ru: logging_app)
    worker = server.workers.first
    rotate(server, %w[app.log], to: worker)
    path = server.file("app.log")
    eventually { ProcessTable.descriptors(worker).values.include?(path) }
    expect(ProcessTable.descriptors(server.pid).values).to include("#{path}.1")
  end

  it "C1 USR1 has the new file belong to whom the old one belonged" do
    skip "takes root" unless Process.uid.zero?
    server = start(ru: logging_app)
    path = server.file("app.log")
    File.chown(65_534, 65_534, path)
    rotate(server, %w[app.log])
    eventually { File.stat(path).uid == 65_534 }
  end

  it "B-faults a log that cannot be opened is named, and the old one stays in use" do
    server = start(ru: logging_app)
    path = server.file("app.log")
    File.rename(path, "#{path}.1")
    FileUtils.mkdir(path)
    server.signal(:USR1)
    server.await_log(/^fastrack: cannot reopen #{path}: is a directory/, 3)
    server.get("/?after")
    expect(File.read("#{path}.1")).to include("after")
  end

  it "B-faults a full disk for the log stops nothing: not a start, a HUP, a crash, a USR1, a USR2 nor a stop" do
    # The port is told by a file: there is no log.
    server = Server.launch(ru: <<~'RUBY', config: "max_workers 2\nerr_respawn_interval 0.1", wrapper: ["sh", "-c", 'exec "$@" >/dev/full 2>&1', "sh"])
      File.write("loaded", "#{Process.pid}\n", mode: "a")
      puts "what Ruby buffers before the server is there"
      run ->(_env) { puts "a line"; $stderr.puts "another"; [200, {}, [Process.ppid.to_s]] }
    RUBY
    port = eventually { listening_port(server) }
    ask = -> { HttpResponse.ask(TCPSocket.new("127.0.0.1", port)) }
    workers = -> { ProcessTable.workers(server.pid) }
    eventually { workers.call.size == 2 }
    # The app's own writes fail, which is the app's to deal with.
    expect(ask.call.status).to eq(500)
    before = workers.call
    server.signal(:HUP)
    eventually { workers.call.then { |found| found.size == 2 && (found & before).empty? } }
    victim = workers.call.first
    server.signal(:KILL, to: victim)
    eventually { workers.call.then { |found| found.size == 2 && !found.include?(victim) } }
    server.signal(:USR1)
    server.signal(:USR2)
    expect(server.wait.exitstatus).to eq(0)
    master = server.lines_of("loaded").last.to_i
    eventually { ProcessTable.workers(master).size == 2 }
    expect(ask.call.status).to eq(500)
    server.signal(:TERM, to: master)
    await_processes(server, 0)
  end

  it "D7 stdout_path and stderr_path at a FIFO wait for no reader, and whoever comes finds the lines" do
    out, err = %w[out err].map { |name| File.join(@dir, name).tap { |path| File.mkfifo(path) } }
    # The port is told by a file.
    server = Server.launch(ru: <<~'RUBY', options: { MaxWorkers: 1, StdoutPath: out, StderrPath: err })
      run ->(env) { env["PATH_INFO"] == "/raise" ? raise("no luck") : [200, {}, [Process.ppid.to_s]] }
    RUBY
    port = eventually { listening_port(server) }
    ask = ->(path) { HttpResponse.ask(TCPSocket.new("127.0.0.1", port), path) }
    expect([ask.call("/").status, ask.call("/raise").status]).to eq([200, 500])
    expect(File.open(out, &:gets)).to match(/\AFastrack starts Listening/)
    # Before it, there may be what is said of this machine's limits.
    line = File.open(err) { |file| file.gets.then { |first| first.include?("open files are allowed") ? file.gets : first } }
    expect([line, ask.call("/").status]).to match([include("no luck (RuntimeError)"), 200])
    server.stop
  end

  # The port that the server's master listens on, as the kernel tells.
  def listening_port(server)
    inodes = ProcessTable.descriptors(server.pid).values.filter_map { |target| target.to_s[/\Asocket:\[(\d+)\]/, 1] }
    line = File.readlines("/proc/net/tcp").map(&:split).find { |fields| fields[3] == "0A" && inodes.include?(fields[9]) }
    line && line[1].split(":").last.hex
  rescue Errno::ENOENT
    nil
  end

  # `write` is all that Ruby asks of what replaces $stderr or $stdout.
  it "B-faults an app that replaces $stderr and $stdout by objects with only `write` has what they write in its log files" do
    server = start(ru: <<~'RUBY', options: { StderrPath: "err", MaxWorkers: 1 })
      Only = Struct.new(:stream) { def write(*text) = stream.write(*text) }
      $stderr = Only.new(STDERR)
      $stdout = Only.new(STDOUT)
      run ->(env) { env["PATH_INFO"] == "/raise" ? raise("no luck") : [200, {}, [Process.pid.to_s]] }
    RUBY
    expect(server.get("/raise").status).to eq(500)
    worker = server.get.body.to_i
    server.renew([worker])
    expect(server.stop.exitstatus).to eq(0)
    expect(server.lines_of("err").join("\n")).to match(/config\.ru:\d+:in .*no luck \(RuntimeError\)/)
  end
end
