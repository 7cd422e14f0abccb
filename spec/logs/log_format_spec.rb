# frozen_string_literal: true

require "fastrack/process/log_format"

# How the server's own lines look, and where they go.
RSpec.describe "LogFormat", once: "text and files" do
  let(:ru) { "run ->(env) { env['PATH_INFO'] == '/exit' ? exit!(3) : [200, {}, []] }" }

  def end_a_worker(server)
    server.await_workers(1)
    # Without an answer.
    server.raw("GET /exit HTTP/1.1\r\nHost: h\r\n\r\n")
  end

  let(:message) { /worker 0 \(pid \d+\) exited with status 3 while serving GET \/exit for \d+\.\d s/ }

  it "adds time, process and level, or makes each line an object in JSON" do
    server = Server.start(ru: ru, options: { MaxWorkers: 1, LogFormat: "timestamp" })
    end_a_worker(server)
    line = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z #{server.pid} ERROR fastrack: #{message}$/
    Eventually.eventually(Server::DEADLINE, -> { server.whole_log }) { server.whole_log.match?(line) }
    expect(server.log).to match(/^\S+Z #{server.pid} INFO Fastrack starts Listening on /)
    server = Server.start(ru: ru, options: { MaxWorkers: 1, LogFormat: "json" })
    end_a_worker(server)
    line = Eventually.eventually { server.log[/^.*exited with status 3.*$/] }
    expect(JSON.parse(line)).to match("time" => /\A\d{4}-.*Z\z/, "level" => "error", "pid" => server.pid, "message" => /\A#{message}\z/)
    expect(server.log.lines).to all(satisfy { |one| JSON.parse(one).key?("message") })
  end

  it "is that of the lines about the ConfigFile, too, once a HUP reads it again" do
    server = Server.ready(ru: ru, options: { MaxWorkers: 1 }, config: %(log_format "json"\nrewindable_input false\n))
    server.signal(:HUP)
    lines = Eventually.eventually { server.log.lines.grep(/"message"/).map { |one| JSON.parse(one) }.then { |all| all if all.count { |one| one["message"].include?("is ready") } == 2 } }
    expect(lines.map { |one| one.values_at("level", "message") }).to include(["info", /\Aloading from config_file:/], ["warn", /\AConfigFile .*bodies are always rewindable/])
    expect(server.log.lines.grep_v(/\A\{/)).to match([/\Aloading from config_file:/, /\Afastrack: ConfigFile /])
  end

  it "is that of what the native part warns of, too, which a logger gets as well", linux: "/dev/full" do
    lost = /the access log has not taken \d+ lines?, which are dropped: .* \(worker \d+\)/
    server = Server.start(ru: ru, options: { MaxWorkers: 1, LogFormat: "json", AccessLog: "/dev/full" })
    server.await_workers(1)
    line = Eventually.eventually { server.get && server.log[/^.*access log has not taken.*$/] }
    expect(JSON.parse(line)).to match("time" => /\A\d{4}-.*Z\z/, "level" => "warn", "pid" => server.workers.first, "message" => /\A#{lost}\z/)
    server = Server.start(ru: ru, options: { MaxWorkers: 1, AccessLog: "/dev/full" }, config: %(require "logger"\nlogger Logger.new("server.txt")\n))
    server.await_workers(1)
    Eventually.eventually { server.get && server.lines_of("server.txt").grep(/WARN -- : #{lost}$/).any? }
    expect(server.log).not_to match(lost)
  end

  it "has a logger that nobody reads hold up neither start, nor signals, nor requests, and says later how much was lost" do
    Dir.mktmpdir do |dir|
      File.mkfifo(path = File.join(dir, "fifo"))
      reader = File.open(path, File::RDWR | File::NONBLOCK)
      config = <<~RUBY
        require "logger"
        LOG = Logger.new(File.open(#{path.inspect}, "w").tap { |file| file.sync = true })
        # Nothing has room any more.
        LOG.info("x" * 4000) while LOG.instance_variable_get(:@logdev).dev.wait_writable(0)
        logger LOG
      RUBY
      server = Server.start(ru: ru, options: { MaxWorkers: 1, ErrRespawnInterval: 0 }, config: %(require "io/wait"\n#{config}))
      end_a_worker(server)
      server.signal(:TTIN)
      server.await_workers(2)
      server.signal(:TTOU)
      server.await_workers(1)
      expect(server.get("/")).to have_attributes(status: 200)
      3.times { end_a_worker(server) }
      text = +""
      Eventually.eventually do
        end_a_worker(server)
        (text << reader.read_nonblock(1 << 20, exception: false).to_s).match?(/\((?:\d+ lines|the line) before this one (?:were|was) lost\)$/)
      end
      reader.close
    end
  end

  it "has a logger that is only slow get all lines, however many come at a time" do
    lines = []
    # Longer than a busy machine takes for a line.
    stub_const("Fastrack::Log::Output::PATIENCE", GcMode.patient(10))
    logger = Object.new
    logger.define_singleton_method(:warn) { |text| sleep(0.001) && lines << text }
    format = Fastrack::LogFormat.new("plain", logger)
    Array.new(3) { |index| Thread.new { format.line(index.to_s, :warn) } }.each(&:join)
    Eventually.eventually { lines.size == 3 }
    expect(lines).to match_array(%w[0 1 2])
  end

  it "has a logger get what would go to stderr" do
    server = Server.start(ru: ru, options: { MaxWorkers: 1 }, config: <<~RUBY)
      require "logger"
      logger Logger.new("server.txt")
    RUBY
    end_a_worker(server)
    Eventually.eventually { server.lines_of("server.txt").grep(/ERROR -- : #{message}$/).any? }
    expect(server.log).not_to include("exited with status 3")
    expect(server.log).to match(/^Fastrack starts Listening on /)
    # In a signal handler, too.
    worker = server.await_workers(1).first
    server.get("/")
    server.signal(:PWR)
    Eventually.eventually { server.lines_of("server.txt").grep(/INFO -- : worker 0 \(pid #{worker}\) is at:$/).any? }
  end

  it "quotes any text for JSON" do
    ["a\"b\\c\n\u2028\u0000\u001b", "gr\u00fcn", "gr\u00fcn".b, "gr\u00fcn".dup.force_encoding("US-ASCII"), "\xff".b, ""].each do |text|
      expect(JSON.parse("[#{Fastrack::LogFormat.quote(text)}]")).to eq([text.dup.force_encoding("UTF-8").scrub("\ufffd")])
    end
  end
end
