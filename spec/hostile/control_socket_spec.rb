# frozen_string_literal: true

require "json"
require_relative "../../lib/fastrack/cli/monitor_client"
require_relative "../../lib/fastrack/cli/status_table"

# Whoever may write to a folder can listen where the commands look for the monitor.
RSpec.describe "A foreign control socket", once: "what the command makes of answers" do
  include CommandFolder

  # Of a server with everything in it.
  def status
    memory = { "cpu_seconds" => 1.5, "rss" => 1, "pss" => 2, "private" => nil }
    worker = { **memory, "nr" => 0, "pid" => 12, "generation" => 1, "state" => "busy", "uptime" => 1.0, "requests" => 3, "request" => "GET /", "request_seconds" => 0.1 }
    { "server" => "fastrack", "version" => "0", "pid" => Process.pid, "phase" => "serving", "serves" => true, "generation" => 1, "uptime" => 2.5, "now" => 9.5,
      "requests" => 7, "connections" => { "waiting" => 0 }, "workers_wanted" => 1, "workers_ready" => 1, "stop_seconds" => 30.0, "other_master" => nil,
      "listeners" => [{ "address" => "h:1", "backlog" => 0, "limit" => nil }], "master" => memory, "mold" => { **memory, "pid" => 3, "generation" => 1, "requests" => 2 },
      "workers" => [worker], "orders" => [{ "number" => 1, "signal" => "HUP", "state" => "done", "reason" => nil, "pid" => nil }],
      "last_exits" => [{ "worker" => 0, "pid" => 9, "cause" => "signal", "text" => "was killed", "at" => 1 }] }
  end

  # Answers each client with what the block writes.
  def answering(&block)
    server = UNIXServer.new(path("app.control"))
    thread = Thread.new do
      loop do
        socket = server.accept
        socket.readpartial(4096)
        block.call(socket)
      rescue SystemCallError, EOFError
        nil
      ensure
        socket&.close
      end
    end
    yield_self { |example| example.instance_variable_set(:@closing, [thread, server]) }
  end

  after { @closing&.then { |thread, server| thread.kill.join && server.close } }

  def with_body(body) = answering { |socket| socket.write("HTTP/1.0 200 OK\r\n\r\n#{body}") }

  it "has nothing of it reach a terminal but printable text" do
    odd = "\e]0;title\a\e[31m\u009b31m\u202e\u0000\r\n"
    with_body(JSON.generate({ **status, "phase" => odd, "version" => odd, "workers" => [{ **status["workers"].first, "state" => odd, "request" => odd }],
                              "last_exits" => [{ **status["last_exits"].first, "text" => odd }], odd => odd }))
    outputs = [%w[status], %w[status --json]].map { |words| fastrack(*words, "--control", "app.control") }
    expect(outputs.map(&:last)).to eq([0, 0])
    expect(outputs.map(&:first).join).not_to match(/[^[:print:]\n]/)
  end

  it "is shown where a worker of it has counters that its app has overwritten" do
    with_body(JSON.generate({ **status, "workers" => [{ **status["workers"].first, "requests" => (1 << 64) - 1, "pss" => (1 << 64) - 1 }] }))
    expect(fastrack("status", "--json", "--control", "app.control")).to match([include('"requests": 9223372036854775807'), 0])
  end

  it "is told in one line when it answers an error, without what a terminal would take for orders" do
    answering { |socket| socket.write("HTTP/1.0 500 No\r\n\r\n\e[31mred\a\n") }
    expect(fastrack("stop", "--control", "app.control")).to eq(["fastrack: the monitor at app.control answers: ?[31mred??\n", 1])
  end

  foreign = "the server at app.control is not the monitor of this version of Fastrack"
  { "[]" => foreign, "{}" => foreign, "null" => foreign, "7" => foreign, '{"server":"fastrack"}' => foreign, "#{"[" * 200}#{"]" * 200}" => foreign, "no JSON" => foreign,
    "\xff" => foreign }.each do |body, message|
    it "is told in one line when it answers #{body[0, 30].inspect}" do
      with_body(body)
      %w[status stop restart].each { |command| expect(fastrack(command, "--control", "app.control")).to eq(["fastrack: #{message}\n", 1]) }
    end
  end

  it "is given up when its answer has no end, before that fills the memory" do
    sent = 0
    answering do |socket|
      socket.write("HTTP/1.0 200 OK\r\n\r\n")
      loop { sent += socket.write("x" * 65_536) }
    end
    expect(fastrack("status", "--control", "app.control")).to eq(["fastrack: the monitor at app.control does not end its answer\n", 1])
    expect(sent).to be < 2 * Fastrack::MonitorClient::LONGEST_ANSWER
  end

  it "is not believed when it says that it is another process than the one that listens" do
    with_body(JSON.generate({ **status, "pid" => Process.ppid }))
    expect(fastrack("stop", "--control", "app.control")).to eq(["fastrack: #{foreign}\n", 1])
  end

  # Each value of a status, one at a time.
  def changed(value, odd, &block)
    case value
    when Hash then value.each { |key, one| [odd, nil].each { |other| yield({ **value, key => other }) }.then { changed(one, odd) { |new| yield({ **value, key => new }) } } && yield(value.except(key)) }
    when Array then value.each_with_index { |one, index| changed(one, odd) { |new| block.call(value.dup.tap { |all| all[index] = new }) } && block.call([odd]) }
    end
    true
  end

  it "is shown or refused, and never a backtrace, whatever one value of its status is" do
    client = Fastrack::MonitorClient.new(path("app.control"))
    answer = nil
    allow(client).to receive(:exchange) { client.instance_variable_set(:@peer, nil) || "HTTP/1.0 200 OK\r\n\r\n#{answer}" }
    seen = Hash.new(0)
    [[], {}, "", "\e[31m", -1, 1.5, 2**62, 2**70, true, [[]], [{}]].each do |odd|
      changed(status, odd) do |one|
        answer = JSON.generate(one)
        text = Fastrack::StatusTable.new(StringIO.new).text(client.status, client.status)
        expect(text).not_to match(/[^[:print:]\n]/)
        seen[:shown] += 1
      rescue Fastrack::Error
        seen[:refused] += 1
      end
    end
    answer = JSON.generate(status).sub('"uptime":2.5', '"uptime":1e999')
    expect { client.status }.to raise_error(Fastrack::Error, /not the monitor/)
    expect(seen).to match(shown: be > 200, refused: be > 500)
  end
end
