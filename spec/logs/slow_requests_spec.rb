# frozen_string_literal: true

# Lines about requests that take longer than LogSlow, while they do.
RSpec.describe "the line of a slow request", linux: "threads that can be signalled one by one" do
  include Folder

  let(:slow) { GcMode.patient(0.2) }

  def serve(**options)
    Server.start(ru: HangingApp::RU, options: { MaxWorkers: 1, RequestTimeout: 0, GracefulTimeout: 0, LogSlow: slow, **options }).tap { |server| server.await_workers(1) }
  end

  def lines(server) = server.log.lines(chomp: true).grep(/^fastrack: .* has taken/)

  # The lines, once there are so many.
  def await_lines(server, count) = Eventually.eventually(20, -> { server.log }) { lines(server).then { |found| found if found.size >= count } }

  # Sends a request that no answer is awaited of.
  def ask(server, path, *fields)
    server.connect.tap { |io| io.write(["GET #{path} HTTP/1.1", "Host: h", *fields, "", ""].join("\r\n")) }
  end

  { "sleeps" => ["/sleep", HangingApp::SLEEP_LINE], "computes" => ["/loop", HangingApp::LOOP_LINE],
    "is in native code that keeps the GVL" => ["/native", HangingApp::NATIVE_LINE] }.each do |what, (path, number)|
    it "comes while the request lasts, and has its split and the place in the app, where the app #{what}" do
      server = serve
      io = ask(server, "#{path}?0", "X-Request-ID: r-7")
      line = await_lines(server, 1).first
      parts = /queue \d+\.\d{3}, upload 0\.000, app \d+\.\d{3}, (?:gvl_wait \d+\.\d{3}, running \d+\.\d{3}, off_gvl \d+\.\d{3}, )?send 0\.000/
      expect(line).to match(/\Afastrack: GET #{path} has taken \d+\.\d s, request id r-7 \(worker #{server.workers.first}\): #{parts}; at .*config\.ru:#{number}:in /)
      # The request still lasts.
      expect(io.read_nonblock(1, exception: false)).to eq(:wait_readable)
    end
  end

  it "comes once for each request, and for none that is quick" do
    server = serve
    ask(server, "/wait")
    await_lines(server, 1)
    server.write("go", "")
    Eventually.eventually { server.get.status == 200 }
    expect(lines(server).grep(%r{ /wait }).size).to eq(1)
    other = serve(LogSlow: 60)
    other.get
    expect(lines(other)).to eq([])
  end

  it "comes for one request a second in each worker, and counts the others" do
    server = serve(MaxThreads: 32, MaxStreams: 0)
    asked = 0
    found = Eventually.eventually do
      3.times { ask(server, "/sleep?0") }
      asked += 3
      # In which a worker may write one line.
      sleep 1
      lines(server).grep(/; \d+ more since the last such line; at /).first
    end
    expect([found[/(\d+) more/, 1].to_i, lines(server).size]).to match([be_between(1, asked - 2), be < asked])
  end
end
