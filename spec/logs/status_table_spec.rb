# frozen_string_literal: true

require "io/console"
require "pty"
require_relative "../../lib/fastrack/cli/status_table"

RSpec.describe "`fastrack status` of a worker whose request has a long path", linux: "a thread with descriptors of its own", once: "a thread without Ruby" do
  include MonitorHelpers

  long = "/#{"long/" * 25}end"

  before(:context) do
    @server = serving(ru: <<~'RUBY', options: { MaxWorkers: 2, RequestTimeout: 0 })
      GO = File.expand_path("go", __dir__)
      run ->(_env) { sleep(0.01) until File.exist?(GO); [200, {}, []] }
    RUBY
    @held = hung(@server, long, 1)
  end

  after(:context) do
    @server.write("go", "")
    @held.each(&:close)
  end

  # What a terminal of so many columns gets. The command begins when the terminal has its size.
  def on_terminal(columns)
    command = [RbConfig.ruby, "-w", Server::COMMAND, "status", "-P", @pid_file]
    PTY.spawn(Server::CLEAN_ENVIRONMENT.merge("TERM" => "xterm", "NO_COLOR" => "1"), "sh", "-c", 'read -r go; exec "$@"', "sh", *command) do |screen, keyboard, pid|
      screen.winsize = [24, columns]
      screen.echo = false
      keyboard.puts
      text = +""
      eventually(Server::DEADLINE, -> { text }) do
        text << screen.readpartial(65_536) if screen.wait_readable(1)
        false
      rescue Errno::EIO, EOFError
        true
      end
      Process.wait(pid)
      return text.split("\r\n")
    end
  end

  it "has the request in a line of its own, beneath its worker, from the path's begin on, in a terminal of 80 columns" do
    lines = on_terminal(80)
    expect(lines.map(&:length).max).to eq(80)
    index = lines.index { |line| line.include?("GET /") }
    expect(lines[index - 1]).to match(/^ +\d +\d+ busy /)
    expect(lines[index]).to match(%r{\A {12}\d[\d.smh]* GET /long/long/.*\.\.\.\z})
    expect(lines.join).not_to include(" gen ")
  end

  it("has all of it in a terminal that is wide enough") { expect(on_terminal(200).grep(/ GET #{long}\z/).size).to eq(1) }

  it "has all of it in a pipe, whatever COLUMNS says" do
    output, status = Open3.capture2e(Server::CLEAN_ENVIRONMENT.merge("COLUMNS" => "40"), RbConfig.ruby, Server::COMMAND, "status", "-P", @pid_file)
    expect([output[/ GET (.*)$/, 1], status.exitstatus]).to eq([long, 0])
  end
end

RSpec.describe Fastrack::StatusTable, once: "text" do
  # A status of two workers, of which so many are busy.
  def status(busy: 0, **more)
    workers = Array.new(2) { |nr| { nr: nr, pid: 100 + nr, state: nr < busy ? "busy" : "idle", requests: 3, slot_requests: 2171, uptime: 3 } }
    all = { version: "1", pid: 9, phase: "serving", uptime: 9, now: 5.0, requests: 90, threads: 1, workers_wanted: 2, workers: workers,
            connections: { waiting: 0, in_app: busy }, listeners: [{ backlog: 0, limit: 9 }], responses: { "5xx": 0 }, timed_out: 0, refused: 0,
            overloaded: 0, dropped: 0, aborted: 0, **more }
    JSON.parse(JSON.generate(all))
  end

  def lines(before, now)
    terminal = Class.new(StringIO) { def tty? = true }.new
    terminal.define_singleton_method(:winsize) { [24, 120] }
    described_class.new(terminal).text(before, now).lines(chomp: true)
  end

  it "has in colour that nobody has time, and that clients wait, and neither where there is room" do
    crowd = { connections: { waiting: 4, in_app: 2 }, listeners: [{ backlog: 7, limit: 9 }, { backlog: 0 }] }
    found = lines(status(busy: 2), status(busy: 2, **crowd))
    expect(found.first(2)).to match([/  \e\[31m4 waiting\e\[0m\z/, /: \e\[33m2 busy\e\[0m  .*  \e\[31mbacklog 7\/9 0\e\[0m  memory/])
    expect(lines(status(busy: 1), status(busy: 1))[1]).to match(/: 1 busy, 1 idle  [^\e]*\z/)
  end

  it "has errors in all and of this moment, the latter in colour, and no line where there are none" do
    before = status(responses: { "5xx": 28 }, timed_out: 1)
    expect(lines(before, status(responses: { "5xx": 30 }, timed_out: 1, aborted: 1))[2])
      .to eq("errors in all: \e[31m5xx 30 (2 now)\e[0m  timeouts 1  \e[31maborted 1 (1 now)\e[0m")
    # Of another master these are other numbers.
    expect(lines(before, status(pid: 10, responses: { "5xx": 30 }))[2]).to eq("errors in all: 5xx 30")
    expect(lines(status, status)[2]).to eq("")
  end

  it "has the end of the proxy's first certificate, in colour in its last 14 days" do
    end_at = Time.now.to_i + 60
    line = ->(left) { lines(status, status(proxy: { pid: 8, state: "serving", certificate_not_after: end_at + left })).grep(/^proxy/).first[/, ([^,]*)\z/, 1] }
    day = ->(left) { Time.at(end_at + left).utc.strftime("%Y-%m-%d") }
    expect([30, 14].map { |days| line.call(days * 86_400) }).to eq([30, 14].map { |days| "certificate until #{day.call(days * 86_400)}" })
    expect(line.call(3 * 86_400)).to eq("\e[31mcertificate ends in 3 days (#{day.call(3 * 86_400)})\e[0m")
    expect(line.call(-3600)).to eq("\e[31mcertificate expired on #{day.call(-3600)}\e[0m")
  end

  it "has a worker's memory as the cause of an exit in good order" do
    now = status(last_exits: [{ at: 1_796_000_000, worker: 0, cause: "memory", text: "exited" }])
    expect(lines(status, now).last).to end_with(" worker 0 exited, because of its memory")
  end

  it "has when a worker has ended by date and time, as the log has them, wherever it is asked" do
    zone = ENV.fetch("TZ", nil)
    ENV["TZ"] = "Asia/Tokyo"
    now = status(last_exits: [{ at: 1_796_000_000, worker: 0, cause: "signal", text: "was killed" }])
    expect(lines(status, now).last).to eq(" 2026-11-30T00:53:20Z worker 0 was killed")
  ensure
    ENV["TZ"] = zone
  end
end
