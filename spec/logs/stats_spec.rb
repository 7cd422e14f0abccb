# frozen_string_literal: true

require_relative "../../lib/fastrack/version"

# What the server tells of itself, to the app and to hooks.
RSpec.describe "Fastrack.stats" do
  let(:ru) { <<~'RUBY' }
    require "json"
    here = File.dirname(File.expand_path(__FILE__))
    run lambda { |env|
      case env["PATH_INFO"]
      when "/stats" then [200, { "content-type" => "application/json" }, [JSON.generate(Fastrack.stats)]]
      when "/missing" then [404, { "content-type" => "text/plain" }, []]
      when "/gc" then GC.start.then { [200, { "content-type" => "text/plain" }, []] }
      when "/exit" then exit!(3)
      when "/hold"
        File.write(File.join(here, "held"), "")
        sleep 0.01 until File.exist?(File.join(here, "release"))
        [200, { "content-type" => "text/plain" }, []]
      else [200, { "content-type" => "text/plain" }, ["hello"]]
      end
    }
  RUBY

  def stats(server) = JSON.parse(server.get("/stats").body, symbolize_names: true)
  def await_stats(server) = Eventually.eventually { stats(server).then { |found| found if yield found } }

  it "says what each worker is at, and what all have done" do
    server = Server.start(ru: ru, options: { MaxWorkers: 2 })
    server.await_workers(2)
    %w[/a /missing /missing /gc].each { |path| server.get(path) }
    holding = Thread.new { server.get("/hold", { "X-Request-ID" => "r-1" }) }
    server.await_file("held")
    found = await_stats(server) { |one| one.dig(:totals, :responses, :"4xx") == 2 && one[:workers].size == 2 }
    expect(found).to include(version: Fastrack::VERSION, pid: server.pid)
    expect(found[:workers].map { |worker| worker.values_at(:nr, :generation, :state) }).to eq([[0, 1, "serving"], [1, 1, "serving"]])
    expect(found[:workers].map { |worker| worker[:pid] }).to match_array(server.workers)
    held = found[:workers].find { |worker| worker[:request] == "GET /hold" }
    expect(held).to include(request_id: "r-1", seconds: be >= 0)
    totals = found[:totals]
    expect(totals).to include(accepted: be >= 5, bytes_in: be > 200, bytes_out: be > 400, timed_out: 0)
    expect(totals.dig(:duration, :count)).to eq(totals[:requests])
    expect([totals.dig(:duration, :buckets, :"60.0"), totals.dig(:connections, :in_app)]).to eq([totals[:requests], 2])
    expect(totals[:gc_time_in_requests] + totals[:gc_time_outside]).to be >= 0
    server.write("release", "")
    holding.value
  end

  it "goes on counting when workers are replaced, and says why they were" do
    server = Server.start(ru: ru, options: { MaxWorkers: 1, ErrRespawnInterval: 0 })
    server.await_workers(1)
    before = await_stats(server) { |one| one.dig(:totals, :requests) >= 3 }
    server.raw("GET /exit HTTP/1.1\r\nHost: h\r\n\r\n")
    after = await_stats(server) { |one| one.dig(:restarts, :failure) == 1 }
    expect(after.dig(:totals, :requests)).to be > before.dig(:totals, :requests)
    server.signal(:HUP)
    found = await_stats(server) { |one| one.dig(:restarts, :reload) == 1 && one[:workers].map { |worker| worker[:generation] } == [2] }
    # Its own, and those of all that had its number. A request that ends the process counts for nobody.
    worker = found[:workers].first
    expect(worker[:slot_requests]).to eq(found.dig(:totals, :requests))
    expect(worker[:slot_requests] - worker[:requests]).to be >= after.dig(:totals, :requests) - 1
  end

  it "is there in the master's hooks, too, and is nil without a server" do
    server = Server.start(ru: ru, options: { MaxWorkers: 1, MaxRequestPerChild: 2 }, config: <<~RUBY)
      after_worker_exit { |server, _worker| File.write("requests", Fastrack.stats[:totals][:requests].to_s) }
    RUBY
    server.await_workers(1)
    3.times { server.get("/a") }
    Eventually.eventually { server.lines_of("requests").first.to_i >= 2 }
    await_stats(server) { |one| one.dig(:restarts, :request_limit) >= 1 }
    expect(`#{RbConfig.ruby} -I lib -r fastrack -e 'p Fastrack.stats'`).to eq("nil\n")
  end
end
