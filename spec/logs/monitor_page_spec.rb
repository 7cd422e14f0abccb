# frozen_string_literal: true

require "support/page_script"
require_relative "../../lib/fastrack/cli/status_table"

# What the page makes of what the monitor tells, and what it is told for that.
RSpec.describe "The monitor's page", linux: "a thread with descriptors of its own", once: "a thread without Ruby" do
  include MonitorHelpers

  describe "is told" do
    it "the workers in the order of their numbers, also after one was replaced" do
      server = serve(options: { MaxWorkers: 3 })
      ready(3)
      first = monitor.status["workers"].find { |one| one["nr"].zero? }["pid"]
      server.signal(:KILL, to: first)
      status = monitor.await("not replaced") { |now| now["workers_ready"] == 3 && now["workers"].none? { |one| one["pid"] == first } }
      expect(status["workers"].map { |one| one["nr"] }).to eq([0, 1, 2])
    end

    it "of requests in progress how many there are, and how long they have taken by now" do
      server = hanging(MaxThreads: 2)
      sum = ->(status, name) { status["workers"].sum { |one| one[name] } }
      held = ask(server, "/wait", 3)
      begun = monitor.await("no three requests") { |status| sum.call(status, "in_app") == 3 }
      # They have begun before the time of this one.
      before = monitor.await("no time passes") { |status| status["now"] > begun["now"] }
      after = monitor.await("no time passes") { |status| status["now"] > before["now"] + 0.5 }
      # The clocks are as exact as the kernel's tick.
      busy = sum.call(after, "busy_seconds")
      expect(busy - sum.call(before, "busy_seconds")).to be_within(0.1).of(3 * (after["now"] - before["now"]))
      server.write("go", "")
      held.each(&:read)
      done = monitor.await("they stay") { |status| sum.call(status, "in_app").zero? }
      expect(sum.call(done, "busy_seconds")).to be >= busy - 0.1
    end

    it "how many requests are a worker's own, and how many its predecessors answered; so are Prometheus and the terminal" do
      server = serve(ru: "run ->(_env) { sleep(0.05) && [200, {}, []] }", options: { MaxWorkers: 1 })
      5.times { server.get }
      # The second one gets the first one's place in the scoreboard.
      status = [2, 3].map do |generation|
        server.reload
        monitor.await { |now| now["generation"] == generation && now["workers"].map { |one| one["generation"] } == [generation] && now["workers_ready"] == 1 }
      end.last
      expect(status["workers"]).to match([include("requests" => 0, "slot_requests" => 5, "busy_seconds" => 0)])
      2.times { server.get }
      status = monitor.await { |now| now["workers"].first.then { |one| one["requests"] == 2 && one["state"] == "idle" && one["pss"] } }
      expect([status["requests"], status["workers"].first["slot_requests"]]).to eq([7, 7])
      expect(monitor.metrics).to include('fastrack_worker_requests{process="worker[0]"}' => 2, 'fastrack_slot_requests_total{process="worker[0]"}' => 7)
      expect(fastrack("status", "-P", @pid_file).first).to match(/ requests   in slot .*^  0 +\d+ idle .* 2 +7 +\d+ MB/m)
    end

    it "what has gone wrong: answers with 5xx, timeouts, refused and late requests, responses that were cut off" do
      server = serve(ru: <<~RUBY, options: { MaxWorkers: 1, ErrRespawnInterval: 0 })
        run(lambda do |env|
          case env["PATH_INFO"]
          when "/raise" then raise "no"
          when "/hang" then [env["fastrack.timeout"].call(0.5), sleep]
          else [200, {}, Enumerator.new { |parts| (parts << "x" * 99_999) && raise("no") }]
          end
        end)
      RUBY
      ready(1)
      3.times { server.get("/raise") }
      expect { ask(server, "/cut").first.read }.to raise_error(Errno::ECONNRESET)
      ask(server, "/hang").first.read
      server.connect { |socket| socket.write("GET / HTTP/1.1\r\nHost: a b\r\n\r\n") && socket.read }
      status = monitor.await { |now| now.values_at("timed_out", "refused", "aborted") == [1, 1, 1] }
      expect([status.dig("responses", "5xx"), *status.values_at("overloaded", "dropped")]).to eq([4, 0, 0])
      expect(fastrack("status", "-P", @pid_file).first).to match(/^errors in all: 5xx 4  timeouts 1  refused 1  aborted 1$/)
    end

    it "host and Ruby" do
      serve
      expect(monitor.status).to include("host" => Socket.gethostname, "ruby" => /\A\w+ #{Regexp.escape(RUBY_VERSION)}/)
    end
  end

  describe "shows" do
    before { skip PageScript.missing if PageScript.missing }

    let(:page) { File.read(File.join(Server::ROOT, "crates/monitor/src/page.html")) }

    # A status at this time, of two workers with two threads each, of which each has been busy for so long.
    def status(now, busy: [0, 0], buckets: [[0.005, 0], [0.01, 0], [nil, 0]], **more)
      workers = busy.each_with_index.map do |seconds, nr|
        { nr: nr, pid: 100 + nr, generation: 1, state: "busy", busy_seconds: seconds, cpu_seconds: seconds, requests: 0, request: "GET /slow", request_seconds: 1 }
      end
      { version: "1", pid: 1, phase: "serving", host: "web-1", ruby: "ruby 3.4.1", threads: 2, generation: 1, uptime: 9, now: now, requests: 0,
        connections: { waiting: 0, in_app: 3 }, responses: { "5xx" => 0 }, timed_out: 0, refused: 0, overloaded: 0, dropped: 0, aborted: 0, listeners: [], workers_ready: 2, workers_wanted: 2, master: {}, workers: workers,
        request_time: { buckets: buckets }, queue_time: { buckets: buckets }, restarts: {}, last_exits: [], **more }
    end

    # Texts of an element and of what is in it.
    def texts(element)
      [element["textContent"], *element["children"].map { |child| child.is_a?(Hash) ? texts(child) : child }].flatten.map(&:to_s).reject(&:empty?)
    end

    def cells(found) = found["workers"]["children"].map { |row| row["children"].to_h { |td| [td["dataset"]["name"], td["textContent"]] } }

    it "busy in percent of what all threads could be, never more than 100" do
      found = PageScript.run(page, [status(0.0), status(2.0, busy: [1, 9])])
      expect(cells(found).map { |row| row["busy"] }).to eq(["25 %", "100 %"])
      expect(texts(found["facts"]).each_cons(2)).to include(["3 of 4", "requests in the app"])
    end

    # The tiles with a colour: [value, name, class].
    def coloured(element)
      element["children"].map { |tile| [*texts(tile).first(2), tile["children"].first["className"]] }.reject { |tile| tile.last.empty? }
    end

    it "in colour that all threads are busy and that clients wait, and nothing in colour where there is room" do
      crowd = { connections: { waiting: 2, in_app: 4 }, listeners: [{ backlog: 7 }], workers_ready: 1 }
      expect(coloured(PageScript.run(page, [status(0.0)])["facts"])).to eq([])
      expect(coloured(PageScript.run(page, [status(0.0, **crowd)])["facts"]))
        .to eq([["1 of 2", "workers ready", "bad"], ["4 of 4", "requests in the app", "busy"], ["9", "clients wait", "bad"], ["7", "of them in the backlog", "bad"]])
    end

    it "each thing that a server or worker is at in a colour, as the terminal does" do
      source = ->(name) { File.read(File.join(Server::ROOT, "crates/monitor/src", name)) }
      words = source.call("master.rs").scan(/Phase::\w+ => "(\w+)"/).flatten + source.call("metrics.rs")[/STATES: .* = (\[.*\]);/, 1].scan(/\w+/)
      expect(words).to include("serving", "down", "dead")
      expect(words.reject { |word| page.match?(/\.#{word}(?:, \.\w+)* \{ color:/) }).to eq([])
      expect(words - Fastrack::StatusTable::COLOURS.keys).to eq([])
    end

    it "what goes wrong, of the last minute and in all" do
      all = { responses: { "5xx" => 30 }, timed_out: 2, refused: 1 }
      found = PageScript.run(page, [[0.0, 29], [35.0, 30], [61.0, 33], [91.0, 34]].map { |now, count| status(now, **all, responses: { "5xx" => count }) })
      expect(found["errors"]["children"].map { |tile| texts(tile) })
        .to eq([["4", "5xx", "34 in all"], ["0", "timeouts", "2 in all"], ["0", "refused", "1 in all"], ["0", "overloaded", "0 in all"],
                ["0", "dropped", "0 in all"], ["0", "aborted", "0 in all"]])
      expect(coloured(found["errors"])).to eq([["4", "5xx", "bad"]])
      # Of another master these are other numbers.
      expect(coloured(PageScript.run(page, [status(0.0), status(1.0, **all, pid: 2)])["errors"])).to eq([])
    end

    it "of each worker which requests are its own, and which those of its slot" do
      found = PageScript.run(page, [status(0.0).tap { |one| one[:workers].first.merge!(requests: 3, slot_requests: 2171) }])
      expect(cells(found).first).to include("requests" => 3, "in slot" => 2171)
    end

    it "what forks the workers, and what a refork would save where there was none" do
      mold = { pid: 9, generation: 1, requests: 312, pss: 54 << 20, private: 6 << 20 }
      said = ->(**more) { texts(PageScript.run(page, [status(0.0, **more)])["mold"]) }
      expect(said.call(mold: mold, generation_0: mold.merge(pid: 8, generation: 0, requests: 0)))
        .to eq(["forked from pid 9, of generation 1, after 312 requests: 54.0 MB, 6.0 MB its own; beside it pid 8, of generation 0, after 0 requests: 54.0 MB, 6.0 MB its own"])
      expect(said.call(mold: mold, refork_saving: 74 << 20).first).to end_with("; refork would save up to 74.0 MB")
    end

    it "the proxy, where there is one: its clients, what has failed and why, and the days of its certificate" do
      hidden = PageScript.run(page, [status(0.0)])
      expect(hidden["proxy"]["hidden"]).to be(true)
      one = { pid: 7, state: "serving", open: 3, streams: 1, tunnels: 2, requests: 10, h2_requests: 4, files: 5, handshakes: 6, resumed: 2, handshake_errors: 1,
              bad_gateway: 1, worker_died: 1, shortage: 0, bytes_saved: 3 << 20, pss: 8 << 20, rss: 9 << 20, certificate_not_after: Time.now.to_i + (86_400 * 5) + 60 }
      found = PageScript.run(page, [status(0.0, proxy: one), status(2.0, proxy: one.merge(requests: 30, bad_gateway: 2, worker_died: 2, lingering: [{ pid: 6, streams: 1 }]))])
      expect([found["proxy"]["hidden"], texts(found["proxy-state"]), texts(found["proxy-about"])]).to eq([false, ["serving"], ["pid 7, pid 6 lingers for 1 streams and 0 sockets"]])
      tiles = found["proxy-facts"]["children"].map { |tile| texts(tile) }
      expect(tiles).to include(["3", "clients", "1 streams, 2 sockets"], ["10.0", "requests/s", "30 in all, 4 by HTTP/2"], ["2", "502 and 503", "worker died 2"], ["8.0 MB", "memory"])
      expect(coloured(found["proxy-facts"])).to eq([["2", "502 and 503", "bad"], ["5", "days of the certificate", "bad"]])
      expect(texts(found["facts"]).each_cons(2)).to include(["8.0 MB", "memory"])
      expect(coloured(PageScript.run(page, [status(0.0, proxy: one.merge(certificate_not_after: Time.now.to_i + (86_400 * 60)))])["proxy-facts"])).to eq([])
    end

    it "the master that answers now: each look is a request of its own, also after one without an answer" do
      found = PageScript.run(page, [status(9.0), nil, status(1.0, pid: 2, requests: 5)], search: "?token=abc")
      expect([texts(found["about"]).first, found["asked"], found["lost"]["hidden"]]).to match([/, pid 2, /, ["status.json?token=abc"] * 4, true])
      expect(PageScript.run(page, [status(9.0), nil])["lost"]["hidden"]).to be(false)
    end

    it "text in colours with a contrast of 4.5 or more, in light and in dark" do
      light, dark = page.scan(/:root \{(.*?)\}/).map { |(colours)| colours.scan(/--(\w+): (#\h{3,6});/).to_h }
      luminance = lambda do |colour|
        parts = colour.delete("#").then { |digits| digits.size == 3 ? digits.gsub(/./, '\0\0') : digits }.scan(/../)
        parts.map { |part| part.hex / 255.0 }.map { |part| part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055)**2.4 }.zip([0.2126, 0.7152, 0.0722]).sum { |one, weight| one * weight }
      end
      contrasts = [light, dark].map do |colours|
        ground = luminance.call(colours.fetch("ground"))
        colours.except("ground", "line").transform_values { |colour| [ground, luminance.call(colour)].minmax.then { |low, high| (high + 0.05) / (low + 0.05) } }
      end
      expect([contrasts.map(&:keys), contrasts.flat_map(&:values)]).to match([[%w[text dim busy idle bad blue]] * 2, all(be >= 4.5)])
      expect(page[%r{<style>(.*)</style>}m, 1].scan(/(?<!-)\b(?:color|fill): ([^;}]+)/).flatten.uniq.grep_v(/\Avar\(--(?:text|dim|busy|idle|bad|blue)\) ?\z/)).to eq([])
    end

    it "0 %, and not less, where a request was counted twice for a moment" do
      found = PageScript.run(page, [status(0.0, busy: [5, 5]), status(1.0, busy: [4, 5])])
      expect(cells(found).map { |row| row["busy"] }).to eq(["0 %", "0 %"])
    end

    it "host, Ruby and threads, and links to what is for machines, with the token" do
      found = PageScript.run(page, [status(0.0)], search: "?token=abc")
      expect(texts(found["about"]).first).to include("web-1", "ruby 3.4.1", "2 threads per worker")
      expect(found.values_at("metrics", "json").map { |link| link["href"] }).to eq(["metrics?token=abc", "status.json?token=abc"])
    end

    it "charts with a baseline, the ends of their axes, and a word where there is nothing" do
      found = PageScript.run(page, [status(0.0)])
      { "rate" => "no requests", "queue" => "nobody waits", "time" => "no requests yet", "wait" => "no requests yet" }.each do |id, word|
        expect(found[id]["children"].count { |one| one["attributes"]["class"] == "axis" }).to eq(1)
        expect(texts(found[id])).to include("0", "1", word)
      end
      found = PageScript.run(page, [status(0.0), status(1.0, requests: 150, buckets: [[0.005, 100], [0.01, 150], [nil, 150]])])
      expect(texts(found["rate"])).to eq(["200", "0", "3 min ago", "now"])
      heights = found["time"]["children"].find { |one| one["name"] == "g" }["children"].map { |bar| bar["attributes"]["height"].to_f }
      expect([heights, texts(found["time"]).first(2)]).to match([[86, 43, 0], %w[100 0]])
    end

    it "a request and a reason on a telephone, too, in lines of their own" do
      narrow = page[/@media \(max-width: 45em\) \{.*?^\}/m]
      expect(narrow).to include("td.request { grid-column: 1 / -1; max-width: none; white-space: normal;")
      found = PageScript.run(page, [status(0.0, last_exits: [{ at: 1, worker: 0, pid: 5, cause: "signal", text: "was killed" }])])
      kinds = found.values_at("workers", "last").map { |body| body["children"].first["children"].last.values_at("className", "textContent") }
      expect(kinds).to eq([["text request", "1.0 s  GET /slow"], ["text request", "was killed"]])
    end

    it "when a worker has ended by date and time, as the log has them, wherever the browser is" do
      found = PageScript.run(page, [status(0.0, last_exits: [{ at: 1_796_000_000, worker: 0, pid: 5, cause: "signal", text: "was killed" }])])
      expect(texts(found["last"]).first).to eq("2026-11-30T00:53:20Z")
    end
  end
end
