# frozen_string_literal: true

RSpec.describe "what the log has of an exception in the app, and of an idle worker", exec: "the frames are those of a new Ruby" do
  ru = <<~'RUBY'
    require "rack"
    class Middle
      def initialize(app) = @app = app
      def call(env) = @app.call(env)
    end
    class Mute < StandardError
      def message = raise("no message")
    end
    use Rack::Head
    use Middle
    run(lambda do |env|
      case env["PATH_INFO"]
      when "/gem" then Rack::Utils.parse_nested_query("a=1&a[b]=2")
      when "/mute" then raise Mute
      else raise ArgumentError, "trouble on purpose"
      end
    end)
  RUBY

  # What the log gets of a request for this path, up to its last line.
  def logged(server, target, headers = {}, last: "BACKTRACE=1 shows them")
    expect(server.get(target, headers)).to have_attributes(status: 500)
    server.await_log(last)
    # A long one may be there in part.
    eventually { server.whole_log[/^[^\n]* failed: .*?#{last}[^\n]*\n/m] }
  end

  it "has time, method, path and request id, but no query string" do
    server = Server.start(ru: ru, options: { MaxWorkers: 1, LogFormat: "timestamp" })
    text = logged(server, "/path/of?secret=1", { "X-Request-Id" => "abc-1" })
    expect(text).to match(/\A\d{4}-\d\d-\d\dT[\d:.]+Z \d+ ERROR fastrack: GET \/path\/of \(request id abc-1\) failed: .*trouble on purpose \(ArgumentError\)$/)
    expect(server.log).not_to include("secret")
  end

  it "escapes what is no plain text" do
    server = Server.start(ru: ru, options: { MaxWorkers: 1 })
    expect(logged(server, "/", { "X-Request-Id" => "caf\xE9\tau".b })).to match(/\A\S+Z \d+ ERROR fastrack: GET \/ \(request id caf\\xe9\\x09au\) failed/)
  end

  it "has the app's frames, and how many others there are" do
    server = Server.start(ru: ru, options: { MaxWorkers: 1 })
    frames = logged(server, "/").lines.drop(1)
    expect([frames.size, frames.first]).to match([2, /\A\tfrom .*config\.ru:\d+:in .*call'$/])
    expect(frames.last).to match(/\A\t\.\.\. [1-9]\d* more of gems, Ruby and Fastrack \(BACKTRACE=1 shows them\)$/)
  end

  it "says where a gem has raised, too" do
    server = Server.start(ru: ru, options: { MaxWorkers: 1 })
    first, *frames = logged(server, "/gem").lines
    expect([first, frames.grep(/config\.ru/).size]).to match([%r{failed: .*/lib/rack/.*\.rb:\d+:in}, 2])
    expect(frames.grep(%r{/lib/rack/})).to eq([])
  end

  it "has all frames with BACKTRACE=1" do
    server = Server.start(ru: ru, options: { MaxWorkers: 1 }, env: { BACKTRACE: "1" })
    text = logged(server, "/gem", last: "fastrack/launcher.rb")
    expect(text.scan(%r{\tfrom .*/lib/rack/}).size).to be > 1
    expect(text).not_to match(/\d more/)
  end

  it "has all frames where none is the app's" do
    server = Server.start(ru: 'run "".method(:upto)', options: { MaxWorkers: 1 })
    expect(logged(server, "/", last: "fastrack/launcher.rb")).to include("TypeError")
  end

  it "has the class of one whose message fails" do
    server = Server.start(ru: ru, options: { MaxWorkers: 1 })
    expect(logged(server, "/mute", last: "Mute")).to match(/\A\S+Z \d+ ERROR fastrack: GET \/mute failed: .*config\.ru:\d+:in .*: Mute$/)
  end

  # What the last thread dump says.
  def dump(server)
    count = server.log.scan("is at:").size
    server.signal(:PWR)
    server.await_log("is at:", count + 1).log.rpartition("is at:\n").last
  end

  it "says of an idle worker that it is idle (PWR), of each of its threads" do
    server = Server.ready(ru: ru, options: { MaxWorkers: 1, MaxThreads: 2 })
    idle = ["the main thread", *[1, 2].map { |number| "a thread (fastrack thread #{number})" }].map { |name| "  #{name}: idle, it waits for a request\n" }.join
    # A thread may not have begun to wait yet.
    eventually(Server::DEADLINE, -> { server.log }) { dump(server) == idle }
  end

  it "says of a busy thread where it is, and nothing of idleness (PWR)" do
    server = Server.ready(ru: "run ->(_env) { sleep }", options: { MaxWorkers: 1, GracefulTimeout: 0 })
    server.connect.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    eventually(Server::DEADLINE, -> { server.log }) { dump(server).match?(/\A  the main thread:\n    .*config\.ru:1:in/) }
  end
end
