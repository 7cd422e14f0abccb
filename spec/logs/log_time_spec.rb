# frozen_string_literal: true

require "pty"

# Which lines have a time, where LogFormat says nothing. Here they are looked at as they are: Server#log takes the times away.
RSpec.describe "The time of a log line", once: "text, files and terminals" do
  ru = "run ->(_env) { [200, {}, []] }"
  time = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/

  # Lines of a server that was told to stop, up to its last one.
  def stopped(server, log = -> { server.whole_log })
    server.stop
    eventually { log.call.include?("stopped, ") }
    log.call.lines(chomp: true)
  end

  it "is before those on stderr, and not before those on stdout that tell where it listens" do
    server = Server.ready(ru: ru, options: { MaxWorkers: 1 })
    lines = stopped(server)
    expect(lines.grep(/fastrack: /)).to match([/\A#{time} #{server.pid} INFO fastrack: TERM: stopping/, /\A#{time} #{server.pid} INFO fastrack: stopped/])
    expect(lines.first(2) + lines.grep(/ready/)).to match([/\AFastrack starts Listening on /, /\AFastrack \d/, /\AFastrack is ready /])
  end

  it "is there in a file of StderrPath, too, which is opened late" do
    server = Server.ready(ru: ru, options: { MaxWorkers: 1, StderrPath: "err.log" })
    expect(stopped(server, -> { server.lines_of("err.log").join("\n") })).to all(match(/\A#{time} #{server.pid} INFO fastrack: /))
  end

  it "is not there with LogFormat=plain" do
    expect(stopped(Server.ready(ru: ru, options: { MaxWorkers: 1, LogFormat: "plain" })).grep(/stopp/)).to match([/\Afastrack: TERM: /, /\Afastrack: stopped/])
  end

  # The journal is what it says in JOURNAL_STREAM: a pipe here.
  { "stderr is the journal" => ["", /\Afastrack: /],
    "the journal is something else than stderr" => ["1", /\A#{time} \d+ INFO fastrack: /] }.each do |where, (digit, expected)|
    it "is #{digit.empty? ? "not " : ""}there where #{where}", linux: "pipes with inodes" do
      reader, writer = IO.pipe
      stat = writer.stat
      server = Server.ready(ru: ru, options: { MaxWorkers: 1 }, env: { JOURNAL_STREAM: "#{stat.dev}:#{stat.ino}#{digit}" },
                            wrapper: ["sh", "-c", 'exec "$@" 2>&5', "sh"], inherit: { 5 => writer })
      writer.close
      server.stop
      expect(reader.read.lines.grep(/fastrack: /)).to match([expected, expected])
    end
  end

  it "is not there in a terminal" do
    PTY.open do |screen, terminal|
      server = Server.ready(ru: ru, options: { MaxWorkers: 1 }, wrapper: ["sh", "-c", 'exec "$@" 2>&5', "sh"], inherit: { 5 => terminal })
      server.stop
      text = +""
      eventually(20, -> { text }) { (text << (screen.wait_readable(1) ? screen.readpartial(4096) : "")).include?("stopped, ") }
      expect(text.lines.grep(/fastrack: /)).to all(match(/\Afastrack: /))
    end
  end
end
