# frozen_string_literal: true

require "json"
require "open3"
require "rbconfig"
require "tmpdir"
require_relative "../../spec_helper"
require_relative "../../support/app_requirements"
require_relative "../../support/tiny_server"
require_relative "../../../bench/support/bench"

RSpec.describe "the benchmark of threads", once: "a tool" do
  describe Bench::ClosedLoop do
    def load(endpoint, seconds: 0.3, **options)
      described_class.new(endpoints: [endpoint], connections: 2, **options).for_seconds(seconds)
    end

    def answer(**fields) = TinyServer::Answer.new(body: "ok", **fields)

    it "sends several requests at once and counts a batch when all of its answers have come" do
      TinyServer.run(->(_) { answer }) do |server|
        found = load(server.endpoint, pipeline: 16)
        expect(found).to include(requests: be > 10, errors: { connect: 0, read: 0, status: 0, timeout: 0 })
        expect([server.paths.size, server.sockets.size]).to eq([found[:requests] * 16, 2])
      end
    end

    it "counts the answers of a batch that is not complete when the time is over" do
      slow = lambda do |_|
        sleep 0.1
        answer
      end
      TinyServer.run(slow) do |server|
        expect(load(server.endpoint, pipeline: 16)).to include(requests: 2, in_time: 0, in_part: be_between(1, 6))
      end
    end

    it "sends those again that the server takes no more of" do
      asked = 0
      lock = Mutex.new
      # Each fifth answer is the last of its connection.
      fifth = ->(_) { lock.synchronize { (asked += 1) % 5 == 0 } ? answer(headers: { "Connection" => "close" }, close: true) : answer }
      TinyServer.run(fifth) do |server|
        found = load(server.endpoint, pipeline: 16)
        expect(found).to include(requests: be > 2, errors: { connect: 0, read: 0, status: 0, timeout: 0 })
        expect(server.paths.size).to eq(found[:requests] * 16)
      end
    end

    it "connects anew after so many answers" do
      TinyServer.run(->(_) { answer }) do |server|
        found = load(server.endpoint, per_connection: 10)
        expect(found).to include(requests: be > 40, errors: { connect: 0, read: 0, status: 0, timeout: 0 })
        # Of each client's last connection, some are left.
        expect(server.sockets.size * 10).to be_between(found[:requests], found[:requests] + 20)
      end
    end

    it "asks as many different requests as there are" do
      Dir.mktmpdir do |dir|
        files = %w[/a /b].map { |path| File.join(dir, path).tap { |file| File.write(file, Bench::Request.new(path: path).to_s(close: false)) } }
        TinyServer.run(->(_) { answer }) do |server|
          found = load(server.endpoint, paths: { "/one" => 3, "/two" => 1 }, request_files: files)
          expect(found[:kinds].transform_values { |kind| kind[:requests] }).to eq("/one": server.paths.count("/a"), "/two": server.paths.count("/b"))
          expect(server.paths.count("/a")).to be > server.paths.count("/b")
        end
      end
    end
  end

  describe Bench::Request do
    it "sends a body as a chunk where it is told to" do
      request = described_class.new(verb: "POST", path: "/sum", body: "0123456789ab", chunked: true)
      expect(request.to_s(close: false)).to eq(
        "POST /sum HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nc\r\n0123456789ab\r\n0\r\n\r\n"
      )
    end
  end

  describe Bench::Measurements::Profile do
    it "fails where an answer is wrong" do
      exchange = described_class::Exchange.new(Bench::Request.new(path: "/sum"), 1, ->(body) { body == "55" })
      # Unless it is told to, the tiny server leaves the connection open.
      TinyServer.run(->(_) { TinyServer::Answer.new(body: "56", close: true) }) do |server|
        bed = Struct.new(:endpoint).new(Bench::Endpoint::Tcp.new(server.endpoint[/\d+\z/].to_i))
        expect { described_class.new([exchange]).run(bed) }.to raise_error(Bench::RunningServer::Failed, %r{GET /sum: 200 and 2 bytes})
      end
    end
  end

  describe Bench::Measurements::Profile do
    it "lets clients wait for twice as long as in one queue" do
      Dir.mktmpdir do |dir|
        slow = lambda do |_|
          sleep 1.2
          TinyServer::Answer.new(body: "ok", close: true)
        end
        TinyServer.run(slow) do |server|
          endpoint = Bench::Endpoint::Tcp.new(server.endpoint[/\d+\z/].to_i)
          bed = Bench::TestBed.new(site: Bench::Site.new(dir: dir, workload: Bench::Workloads.named(%w[rails-json-64]).first, workers: 1, lane: nil),
                                   endpoints: [endpoint], tree: Bench::ProcessTree.new([]), round: 0,
                                   options: Bench::Options.new(%w[--quick --seconds 6 --concurrency 2]))
          exchange = described_class::Exchange.new(Bench::Request.new, 1, ->(_) { true })
          expect(described_class.new([exchange]).run(bed)).to include("clients" => 2, "clients_served" => 2, "longest_gap_ms" => be > 1_000)
        end
      end
    end
  end

  describe Bench::Workloads do
    it "has each profile on Rails and on Roda for both numbers of clients, and on Sinatra when it is named" do
      names = described_class.named(%w[profiles]).map(&:name)
      expect([names.size, names.grep(/\Arails-/).size, names.grep(/\Aroda-/).size]).to eq([32, 16, 16])
      expect(described_class.named(%w[profiles-sinatra-512]).map(&:name)).to include("sinatra-static-512").and have_attributes(size: 8)
      slice = described_class.named(%w[profiles-rails-64])
      expect(slice.map(&:name)).to include("rails-baseline-64", "rails-pipelined-64", "rails-async-db-64", "rails-api-4-64")
      expect(slice.map { |workload| workload.setting(:concurrency, Bench::Options.new([])) }.uniq).to eq([64])
      expect(described_class.named(%w[threads]).map(&:name)).to eq(%w[threads-sleep threads-burn rails-page rails-wait memory-threads])
    end

    it "has as many threads in a worker of every threaded server as the workload says" do
      lane = Bench::Lane.new("system")
      Dir.mktmpdir do |dir|
        words = %w[rails-json-64 threads-sleep].map do |name|
          workload = described_class.named([name]).first
          site = Bench::Site.new(dir: dir, workload: workload, workers: 2, lane: lane)
          Bench::Servers.named(%w[fastrack-threads puma-threads fastrack], []).map { |server| server.commands(site).first.join(" ") }
        end
        expect(words.flatten).to match([/MaxThreads=4/, /-t 4:4/, /\A(?!.*MaxThreads)/, /MaxThreads=5/, /-t 5:5/, /\A(?!.*MaxThreads)/])
      end
    end
  end

  describe Bench::Targets do
    def server(name, measured, **ratios)
      { "name" => name, "failed" => 0, "rounds" => [measured], "ratios" => ratios.transform_keys(&:to_s),
        "medians" => { "errors" => 0, "clients" => 4, "clients_served" => 4 }.merge(measured) }
    end

    def missed(name, kind, server)
      workload = { "name" => name, "kind" => kind, "servers" => [server, server("fastrack", {})] }
      described_class.check("lane" => "rack3", "quick" => false, "rounds" => 5, "workloads" => [workload]).reject(&:reached?).map(&:subject)
    end

    def own(measured = {}, **ratios) = server("fastrack-threads", measured, **ratios)

    it "wants a page that loses nothing to threads" do
      expect(missed("rails-page", "page", own({ "p99_to_p50" => 1.3 }, fastrack: { "rps" => 0.97 }))).to eq([])
      expect(missed("rails-page", "page", own({ "p99_to_p50" => 1.31 }, fastrack: { "rps" => 0.96 }))).to eq(["p99, to p50", "requests/s, to fastrack's"])
      expect(missed("rails-page", "page", own).size).to eq(2)
    end

    it "wants a page that waits to be served as often as by Puma, with less of a tail and less memory" do
      puma = { "rps" => 1.0, "p99_ms" => 0.7, "pss_mb_loaded" => 0.7 }
      expect(missed("rails-wait", "page", own({}, "puma-threads": puma))).to eq([])
      beyond = { "rps" => 0.99, "p99_ms" => 0.71, "pss_mb_loaded" => 0.71 }
      expect(missed("rails-wait", "page", own({}, "puma-threads": beyond)).size).to eq(3)
    end

    it "wants threads to take a tenth more memory at most" do
      expect(missed("memory-threads", "memory-threads", own({}, fastrack: { "pss_mb_after_1" => 1.1, "pss_mb_after_20000" => 1.1 }))).to eq([])
      beyond = { "pss_mb_after_1" => 1.11, "pss_mb_after_20000" => 1.11 }
      expect(missed("memory-threads", "memory-threads", own({}, fastrack: beyond)).size).to eq(2)
    end

    it "wants half as many requests again as Puma's in each profile, and no longer tail" do
      expect(missed("sinatra-json-512", "profile", own({}, "puma-threads": { "rps" => 1.5, "p99_ms" => 1.0 }))).to eq([])
      expect(missed("sinatra-json-512", "profile", own({}, "puma-threads": { "rps" => 1.49, "p99_ms" => 1.01 }))).to eq(
        ["requests/s, to puma-threads's", "p99, to puma-threads's"]
      )
    end
  end

  describe Bench::AppAlone do
    def alone(file, paths, **request)
      exchanges = paths.map { |path| Bench::Measurements::Profile::Exchange.new(Bench::Request.new(path: path, **request), 2, nil) }
      workload = Bench::Workload.new("alone", title: "Alone", app: Bench::FrameworkApp.new(file, []), front: :tcp, servers: [],
                                              measurement: Bench::Measurements::Profile.new(exchanges))
      described_class.measure(workload, Bench::Lane.new("system"), 0.2, processes: 2).fetch("app_us")
    end

    it "measures the CPU time of an app's calls, not how long they wait" do
      expect(alone("hello.ru", %w[/ /more])).to be > 0
      # One of its calls takes a thousand.
      expect(alone("nap.ru", %w[/])).to be_between(1, 900)
    end

    it "fails where the app does not answer" do
      expect { alone("file.ru", %w[/big], verb: "POST") }.to raise_error(Bench::RunningServer::Failed, %r{alone: .*/big: 405})
    end

    # @return what two workers on two cores could do at most, and as a multiple of Puma's 1,000 requests per second
    def most(app_us, client_us, database_us = nil)
      servers = [{ "name" => "puma-threads", "medians" => { "rps" => 1_000.0, "client_us" => client_us } }, { "name" => "fastrack-threads", "medians" => {} }]
      result = { "app_us" => app_us, "database_us" => database_us, "cores" => 2, "workers" => 2, "servers" => servers }
      [described_class.most_rps(result), described_class.most_to(result, "puma-threads")]
    end

    it "knows how much more than another server any could answer, with database and load generator on the same cores" do
      expect(most(900.0, 100.0)).to eq([2_000.0, 2.0])
      expect(most(900.0, 100.0, 1_000.0)).to eq([1_000.0, 1.0])
      expect(most(1_600.0, nil)).to eq([1_250.0, 1.25])
      expect(most(nil, 100.0)).to eq([nil, nil])
    end

    it "is told where a target is out of every server's reach" do
      own = { "name" => "fastrack-threads", "failed" => 0, "medians" => { "errors" => 0 }, "rounds" => [],
              "ratios" => { "puma-threads" => { "rps" => 1.1, "p99_ms" => 0.9 } } }
      puma = { "name" => "puma-threads", "medians" => { "rps" => 1_000.0 } }
      workload = { "name" => "roda-json-64", "kind" => "profile", "workers" => 2, "cores" => 2, "app_us" => 1_600.0, "servers" => [own, puma] }
      verdicts = Bench::Targets.check("lane" => "rack32", "quick" => false, "rounds" => 5, "workloads" => [workload]).map(&:to_s)
      expect(verdicts).to include("MISSED   roda-json-64: requests/s, to puma-threads's 1.100 (>= 1.50; the app alone allows 1.25)")
      expect(verdicts.grep(/app alone/).size).to eq(1)
    end
  end

  describe "bench/run" do
    features = %w[rails active_record pg]
    missing = AppRequirements.missing("Rails with pg", "#{features.inspect}.each { |name| require name }")

    def run(names, servers, *more)
      Dir.mktmpdir do |dir|
        command = [RbConfig.ruby, "-w", File.join(Server::ROOT, "bench/run"), "--quick", "--out", dir, *more, "--workload", names.join(",")]
        output, status = Open3.capture2e(*command, "--server", servers)
        raise "bench/run: #{status}\n#{output}" unless status.success?

        expect(output).not_to include("warning:")
        workloads = JSON.parse(File.read(File.join(dir, "system.json")))["workloads"]
        expect(workloads.map { |workload| workload["name"] }).to eq(names)
        expect(workloads.flat_map { |workload| workload["servers"] }.map { |server| server["medians"]["errors"] + server["failed"] }).to all(eq(0))
        [workloads, File.read(File.join(dir, "system.md"), encoding: "UTF-8")]
      end
    end

    it "measures what threads take of memory" do
      (workload,), report = run(%w[memory-threads], "fastrack,fastrack-threads")
      expect(workload["servers"].last["ratios"]["fastrack"]).to include("pss_mb_after_1" => be > 0.5, "pss_mb_after_20000" => be > 0.5)
      expect(report).to include("to one thread after 1")
    end

    it "measures pages from PostgreSQL beside those of one thread", skip: missing, once: false do
      workloads, report = run(%w[rails-page rails-wait], "fastrack,fastrack-threads", "--workers", "1", "--concurrency", "4", "--seconds", "1")
      workloads.each do |workload|
        own = workload["servers"].last
        expect(own["medians"]).to include("requests" => be > 0, "p99_to_p50" => be >= 1, "pss_mb_idle" => be > 10, "pss_mb_loaded" => be > 10)
        expect(own["ratios"]["fastrack"]).to include("p99_ms" => be > 0, "pss_mb_loaded" => be > 0)
      end
      expect(workloads.map { |workload| workload["servers"].map { |server| server["rounds"].size } }).to eq([[4, 4], [1, 1]])
      # The page and the query before it.
      expect(workloads.last["servers"].first["medians"]["p50_ms"]).to be > 20
      expect(report).to include("PSS MB idle")
    end

    # Every endpoint of each app, and every profile. Roda is in the lane rack32 only.
    { "rails" => %w[baseline json-comp async-db static], "sinatra" => %w[limited-conn pipelined json-comp static api-4],
      "roda" => %w[limited-conn pipelined json-comp static api-4] }.each do |app, profiles|
      features = Bench::Profiles::APPS.fetch(app).features
      lacking = ("no Roda here" if app == "roda" && ENV["FASTRACK_LANE"] != "rack32") ||
                AppRequirements.missing("#{app.capitalize} with pg", "#{features.inspect}.each { |name| require name }")

      it "measures profiles on #{app.capitalize}, with right answers", skip: lacking, once: false do
        names = profiles.map { |profile| "#{app}-#{profile}-64" }
        workloads, report = run(names, "fastrack-threads", "--concurrency", "4")
        workloads.each { |workload| expect(workload["servers"].first["medians"]).to include("requests" => be > 0, "p99_ms" => be > 0, "clients" => 4) }
        expect(report).to include("(`#{names.last}`)").and match(/The app alone takes [\d.]+ µs of CPU time per request: .* no server can answer more than/)
      end
    end

    it "says at once what a workload's app lacks", skip: ("it lacks nothing here" unless missing) do
      output, status = Open3.capture2e(RbConfig.ruby, File.join(Server::ROOT, "bench/run"), "--quick", "--workload", "rails-page")
      expect([status.exitstatus, output]).to match([2, /the lane system has no .*rails/])
    end
  end
end
