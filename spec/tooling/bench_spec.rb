# frozen_string_literal: true

require "json"
require "open3"
require_relative "../../bench/support/bench"

# That each program of bench/ still runs, and that the arithmetic is right. How good the figures are is not the question.
RSpec.describe "The benchmark", once: "the benchmark's programs" do
  number = /\d[\d,.]*/
  # What each is told to be over soon, and the figures that it has to print. The lines are those of its report, in that order.
  programs = {
    # Its verdict is about seconds, too, which a busy machine may miss: 1 is as good as 0.
    "soak" => [%w[--seconds 0.5 --seed 2 --acts hup], /^verdict: (?:stood|FAILED), [1-9]\d* requests answered/, [0, 1]],
    "marks" => [[], /\Aruby .*\n(?:.+ #{number}\n){7}\z/],
    # The app is not Rails: it has next to nothing to share.
    "refork" => [%w[--lane system --threads 1 --workers 2 --before 60 --after 20,40 hello.ru], /^ +1 +refork(?: +\d+\*?){5} +0\n +1 +without(?: +\d+){5} +0\n\z/],
    "warm_up" => [%w[--lane system --server without,warm --workers 2 --after 20,40 hello.ru], /\AMB; .*\nwithout (?: +\d+){3}\nwarm    (?: +\d+){3}\n\z/],
    "boot" => [%w[--rounds 1 --workers 1 --app hello --against .], /\Aruby .*\nhello this #{number} ms, the other #{number} ms: #{number} times\n\z/],
    "uploads" => [%w[--seconds 1 --uploads 2], /\Ap99 alone #{number} ms, beside 2 uploads #{number} ms .*, which sent \d+ MB meanwhile$/],
    "queue_time" => [%w[--upload 0.4 --queue 0.2], /^fastrack, no router +blind +\d+ +\d+$/],
    "deploys" => [%w[--usr2 1 --seconds 2 --rounds 1 --streams 2 --sockets 1],
                  /\A1 USR2s\n(?:  .+ \d+ requests, \d+ lost\n){7}2 s, .*\n(?:  .+ \d+ requests, \d+ lost\n){7}3 streams and sockets: \d+ ended in order, .*\nload: /],
    "stalled" => [%w[--clients 1 --streams 2 --codings identity --after 0], /^identity +idle #{number} MB, at most #{number} MB \(\d+ requests reached workers\)/],
    "streams" => [%w[--seconds 1 --rounds 1 --streams 5 --memory 20], /\Ap99 alone #{number} ms, beside 5 streams #{number} ms: #{number} times\na stream takes #{number} KB; .*\nload: /],
    # CPU of each server for a request, and the memory of the proxy's process.
    "proxy" => [%w[--quick --only hello --server nginx], /^hello +fastrack #{number} \(1\.00\), nginx #{number} \(#{number}\)\n0 clients: #{number} MB\n/],
    "browser" => [%w[--rounds 1 --warm 1 --server puma], /^cold  fastrack #{number} \(h2\), puma #{number} \(http.1\.1\)\nwarm  fastrack #{number} \(h2\), puma #{number} \(http.1\.1\)\nload: /],
    # Two hundred milliseconds of one server.
    "run" => [%w[--quick --seconds 0.2 --workload hello-tcp --server fastrack --out DIR], /^\| fastrack(?: \| #{number}){5} \| \d+ of \d+ \| /],
    # A suite of two cases; this server takes the second one's method.
    "conformance" => [%w[llhttp DIR], /\AStrange method: refused; here: 200 1 seen\n    "STRANGE .*"\n1 passed, 1 failed\n\z/, [1]],
    # Counting takes minutes under valgrind. It judges these figures, which are no lane's.
    "instructions" => [%w[--check --from DIR/figures.json], /^\w+ +instructions: access log, combined, share of a request #{number} \(/, [1]]
  }

  it "has a smoke run of each of its programs" do
    there = Dir.children("#{Server::ROOT}/bench").select { |name| File.executable?("#{Server::ROOT}/bench/#{name}") && File.file?("#{Server::ROOT}/bench/#{name}") }
    expect(programs.keys).to match_array(there)
  end

  # Three at once, because they wait more than they compute.
  before(:context) do
    Bench::ClosedLoop.program
    waiting = programs.keys
    @runs = {}
    Dir.mktmpdir("fastrack-bench") do |dir|
      File.write("#{dir}/figures.json", JSON.generate("pipelined" => 2_800, "combined" => 3_000))
      Folder.write(dir, "test/request/cases.md", <<~MARKDOWN)
        ### Chunks
        <!-- meta={"type": "request"} -->
        ```http
        POST / HTTP/1.1
        Transfer-Encoding: chunked

        3
        a\\rb
        0


        ```
        ```log
        off=0 message complete
        ```
        ### Strange method
        <!-- meta={"type": "request"} -->
        ```http
        STRANGE / HTTP/1.1


        ```
        ```log
        off=0 error code=6 reason="Invalid method"
        ```
      MARKDOWN
      run = lambda do |name|
        words = programs.fetch(name).first.map { |word| word.sub("DIR", dir) }
        @runs[name] = Open3.capture2e(RbConfig.ruby, "-w", "bench/#{name}", *words, chdir: Server::ROOT)
      end
      Array.new(3) { Thread.new { nil while (name = waiting.shift) && run.call(name) } }.each(&:join)
    end
  end

  programs.each do |name, (_, figures, statuses)|
    it "has bench/#{name} print figures" do
      output, status = @runs.fetch(name)
      skip(output) if name == "browser" && output.end_with?("which is not here (Debian: chromium)\n")
      expect(statuses || [0]).to include(status.exitstatus), output
      expect(output).to match(figures)
      expect(output).not_to match(/^#{Server::ROOT}.*warning:/)
    end
  end

  describe Bench::Statistics do
    it "gives medians without the gaps, all errors, and of clients the worst round" do
      expect([[9, 1, 5], [1, 9, 3, 5], [nil, 2, nil], [nil]].map { |values| described_class.median(values) }).to eq([5, 4.0, 2, nil])
      rounds = [[100.0, 1, 4], nil, [300.0, 2, 3]].map { |round| round && %w[rps errors clients_served].zip(round).to_h.merge("clients" => 4) }
      expect(described_class.medians(rounds)).to include("rps" => 200.0, "errors" => 3, "clients_served" => 3)
    end

    it "compares within each round, and leaves those out in which one of the two has nothing" do
      mine, other = [[10.0, 40.0, 12.0, nil, 5.0], [20.0, 80.0, 60.0, 1.0, 0.0]].map { |all| all.map { |us| us && { "cpu_us" => us } } }
      # The ratio of the medians would be 11 / 20.
      expect(described_class.ratios(mine, other)).to eq("cpu_us" => 0.5)
    end
  end

  it "divides CPU time by all requests, and counts for requests per second those that were answered in time" do
    load = { requests: 2_000, in_time: 1_000, duration_us: 4_000_000, clients: 8, served_every_second: 7, longest_gap_us: 1_500_000,
             p50_us: 1_500, p95_us: 2_000, p99_us: 3_250, max_us: 9_000, errors: { connect: 1, status: 2 } }
    expect(Bench::Measurements::Load.result(50_000_000, load)).to include("cpu_us" => 25.0, "rps" => 250.0, "p99_ms" => 3.25, "errors" => 3)
    expect(Bench::Measurements::Load.least_share([30, 50, 20])).to eq(0.2)
  end

  describe "its clients" do
    around do |example|
      server = TCPServer.new("127.0.0.1", 0)
      @endpoint = Bench::Endpoint::Tcp.new(server.local_address.ip_port)
      @asked = Queue.new
      accepting = Thread.new { loop { Thread.new(server.accept) { |socket| answer(socket) } } }
      example.run
    ensure
      accepting&.kill
      server&.close
    end

    def answer(socket)
      while (head = socket.gets("\r\n\r\n"))
        @asked << head
        body = head.start_with?("GET /long") ? "x" * 5_000_000 : "ok"
        socket.write("HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\nX-Service-Time: 7\r\n\r\n#{body}")
        break if head.include?("Connection: close")
      end
      socket.close
    rescue SystemCallError
      nil
    end

    # Clients served in each second, without those that the machine has stopped for longer.
    def be_served_every_second(asked, clients) = asked[:longest_gap_us] > 1_000_000 ? be < clients : eq(clients)

    it "ask each request by its weight, and are told apart where some connect anew" do
      often, seldom = %w[/often /seldom].map { |path| Bench::Request.new(path: path) }
      load = Bench::ClosedLoop.new(endpoint: @endpoint, requests: { often => 9, seldom => 1 }, connections: 3, new: 1).for_requests(300)
      expect(load).to include(requests: 300, clients: 3, served_every_second: be_served_every_second(load, 3), errors: { connect: 0, read: 0, status: 0, timeout: 0 })
      expect(load[:samples].map(&:service_us).uniq).to eq([7])
      expect(load[:samples].count { |sample| sample.request == seldom }).to be_between(5, 80)
      heads = Array.new(@asked.size) { @asked.pop }
      expect(heads.count { |head| head.start_with?("GET /seldom ") }).to eq(load[:samples].count { |sample| sample.request == seldom })
      expect(load[:new]).to include(requests: heads.count { |head| head.include?("Connection: close") }, clients: 1)
      expect(load[:kept]).to include(requests: 300 - load[:new][:requests], clients: 2)
      expect(load[:p50_us]).to be <= load[:p99_us]
    end

    it "hold connections on which nothing happens, as many as the server keeps" do
      held, there, asked = Bench::Bystanders.hold(@endpoint, 40, 60) { |found| found["held"] }
      expect([held, there, asked[:clients], asked[:served_every_second]])
        .to match([40, { "held" => 40, "closed" => 0, "failed" => 0, "still_open" => 40 }, 40, be_served_every_second(asked, 40)])
    end

    it "send and read slowly, and begin anew where the server breaks off" do
      _, broken = Bench::Bystanders.trickle(@endpoint, senders: 2, readers: 2, path: "/long", interval_ms: 20, bytes: 100) do
        eventually { @asked.size == 2 }
      end
      expect([broken, Array.new(2) { @asked.pop }]).to match([0, all(start_with("GET /long "))])
      server = TCPServer.new("127.0.0.1", 0)
      closed = Queue.new
      closing = Thread.new { loop { closed << server.accept.tap { |socket| socket.readpartial(1) }.close } }
      _, broken = Bench::Bystanders.trickle(Bench::Endpoint::Tcp.new(server.local_address.ip_port), senders: 1, path: "/", interval_ms: 5, bytes: 1) do
        eventually { closed.size > 2 }
      end
      expect(broken).to be_between(2, closed.size)
    ensure
      closing&.kill
      server&.close
    end
  end

  # The workload refork itself takes Rails and PostgreSQL.
  it "tells memory and latencies before and after a refork, and what a successor takes", linux: "a subreaper (prctl(2))" do
    workload = Bench::Workload.new("refork", title: "", app: "hello.ru", front: :tcp, servers: %w[fastrack],
                                             measurement: Bench::Measurements::Refork.new(4_500), settings: { workers: 2 })
    options = Bench::Options.new(%w[--quick])
    server, = Bench::Servers.named(%w[fastrack])
    figures = Bench::Trial.new(server, workload, options, Bench::Lane.new("system"), 0).run
    expect(figures.values_at("pss_mb_idle", "pss_mb_before", "pss_mb_reforked", "pss_mb_after")).to all(be > 1)
    expect([figures.count { |name, value| name.match?(/_from_|_kept/) && value.positive? }, figures["errors"]]).to eq([8, 0])
  end
end
