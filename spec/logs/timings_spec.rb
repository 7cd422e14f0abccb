# frozen_string_literal: true

# Where the time of a request goes. A machine that is busy makes each part longer, so the examples compare parts, and name lower bounds.
RSpec.describe "the division of a request's time" do
  include Folder

  # Ruby 3.1 reports nothing of its GVL.
  gvl = RUBY_VERSION.to_f >= 3.2

  # `/sleep` waits, `/burn` computes. Both take 0.2 s. After the response the app writes its division to a file.
  let(:ru) { <<~'RUBY' }
    burn = lambda do |seconds|
      start = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
      nil while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) - start < seconds
    end
    run lambda { |env|
      env["rack.input"]&.read
      case env["PATH_INFO"]
      when "/sleep" then sleep 0.2
      when "/burn" then burn.call(0.2)
      end
      key = env.key?("rack.response_finished") ? "rack.response_finished" : "rack.after_reply"
      env[key] << lambda { |*|
        text = JSON.generate(Fastrack.timings(env))
        File.open("timings", "a") { |file| file.puts(text) }
      }
      so_far = Fastrack.timings(env)
      [200, { "content-type" => "text/plain" }, env["PATH_INFO"] == "/big" ? Array.new(20, "a" * 1_000_000).each : [so_far.inspect]]
    }
    require "json"
  RUBY

  let(:all) { gvl ? %w[queue upload app gvl_wait running off_gvl send] : %w[queue upload app send] }

  def serve(**options)
    Server.start(ru: ru, options: { MaxWorkers: 1, Timings: true, **options }).tap { |server| server.await_workers(1) }
  end

  # The divisions that callbacks have written, once there are so many.
  def written(server, count)
    Eventually.eventually(20, -> { server.lines_of("timings") }) { server.lines_of("timings").then { |lines| lines if lines.size >= count } }
          .map { |line| JSON.parse(line) }
  end

  it "has the wait apart from the computing, also with one thread", if: gvl do
    server = serve
    %w[/sleep /burn].each { |path| expect(server.get(path).status).to eq(200) }
    slept, burnt = written(server, 2)
    expect(slept).to include("off_gvl" => be >= 0.19)
    expect(burnt).to include("running" => be >= 0.19)
    [slept, burnt].each do |one|
      expect(one.values_at("gvl_wait", "running", "off_gvl").sum).to be_within(1e-5).of(one["app"])
    end
  end

  it "has the wait for the GVL that another thread of the worker has", if: gvl do
    # The other thread keeps the GVL until its turn is over, which takes 100 ms.
    greedy = ru.sub("sleep 0.2", "busy = Thread.new { nil while true }; 3.times { sleep 0.01 }; busy.kill")
    server = Server.start(ru: greedy, options: { MaxWorkers: 1, Timings: true })
    server.get("/sleep")
    expect(written(server, 1).first["gvl_wait"]).to be > 0.03
  end

  it "has the queue, the upload and the app, whatever Ruby it is, and none of the GVL's parts where Ruby does not tell them" do
    server = serve
    HttpPeer.open(server) do |peer|
      peer.write("POST /sleep HTTP/1.1\r\nHost: h\r\nX-Request-Start: t=#{Time.now.to_f - 5}\r\nContent-Length: 2\r\nConnection: close\r\n\r\na")
      Eventually.eventually { peer.taken? }
      # How long the upload takes is the subject of the example.
      sleep 0.3
      peer.write("b").read_to_end
      expect(peer.received).to start_with("HTTP/1.1 200")
    end
    found = written(server, 1).first
    expect(found.keys).to eq(all)
    expect(found).to include("queue" => be >= 4.5, "upload" => be >= 0.2, "app" => be >= 0.19)
  end

  it "has the wait for a client that reads slowly apart from the app's time" do
    server = serve(ResponseBuffer: 0, MaxResponseSpool: 0)
    server.connect do |io|
      io.write("GET /big HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
      io.readpartial(100)
      # How slow the client is is the subject of the example.
      sleep 1
      expect(io.read.bytesize).to be > 19_000_000
    end
    found = written(server, 1).first
    expect(found["send"]).to be > 0.2
  end

  it "is told during the request as far as it has come, to any thread, and no more when the request is over" do
    server = Server.start(ru: <<~'RUBY', options: { MaxWorkers: 1, Timings: true })
      kept = nil
      run lambda { |env|
        before = kept && Fastrack.timings(kept)
        kept = env
        first = Fastrack.timings(env)
        sleep 0.02
        second = Thread.new { Fastrack.timings(env) }.value
        [200, { "content-type" => "text/plain" }, [[before, first[:app] < second[:app], Fastrack.timings({})].inspect]]
      }
    RUBY
    expect(Array.new(2) { server.get.body }).to eq(["[nil, true, nil]"] * 2)
  end

  it "is in each line of a JSON access log, and not where nobody asked for it" do
    server = serve(AccessLog: "access.log", AccessLogFormat: "json")
    server.get("/sleep")
    other = Server.start(ru: ru.gsub("Fastrack.timings(env)", "Fastrack.timings(env).inspect"), options: { MaxWorkers: 1, AccessLog: "other.log", AccessLogFormat: "json" })
    expect(other.get.body).to eq('"nil"')
    line, plain = [[server, "access.log"], [other, "other.log"]].map do |one, file|
      JSON.parse(Eventually.eventually { one.lines_of(file).first })
    end
    expect(line.keys & all).to eq(all - %w[queue])
    expect(plain.keys & all).to eq([])
    expect(line["app"]).to be_between(0.19, line["duration"])
  end

  it "is told to the client by Server-Timing, if ServerTiming asks for that" do
    server = serve(Timings: false, ServerTiming: true)
    fields = server.get("/sleep").headers["Server-Timing"].split(", ").to_h { |part| part.split(";dur=") }
    expect(fields.keys).to eq(all - %w[send])
    expect(fields["app"].to_f).to be >= 190
    expect(serve.get.headers["Server-Timing"]).to be_nil
  end

  it "is in histograms of the monitor", linux: "a monitor" do
    server = serve(Pid: "app.pid")
    %w[/sleep /].each { |path| server.get(path) }
    monitor = MonitorClient.new(server.file("app.control"))
    found = Eventually.eventually { monitor.metrics.then { |metrics| metrics if metrics["fastrack_app_seconds_count"] == 2 } }
    expect(found).to include("fastrack_app_seconds_sum" => be >= 0.19, 'fastrack_app_seconds_bucket{le="0.1"}' => be <= 1)
    expect(found["fastrack_gvl_wait_seconds_count"]).to eq(gvl ? 2 : nil)
  end
end
