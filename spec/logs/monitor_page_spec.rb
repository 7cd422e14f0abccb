# frozen_string_literal: true

require "support/page_script"

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
      before = monitor.await("no three requests") { |status| sum.call(status, "in_app") == 3 }
      after = monitor.await("no time passes") { |status| status["now"] > before["now"] + 0.5 }
      # The clocks are as exact as the kernel's tick.
      busy = sum.call(after, "busy_seconds")
      expect(busy - sum.call(before, "busy_seconds")).to be_within(0.1).of(3 * (after["now"] - before["now"]))
      server.write("go", "")
      held.each(&:read)
      done = monitor.await("they stay") { |status| sum.call(status, "in_app").zero? }
      expect(sum.call(done, "busy_seconds")).to be >= busy - 0.1
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
        connections: { waiting: 0, in_app: 3 }, listeners: [], workers_ready: 2, workers_wanted: 2, master: {}, workers: workers,
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
      expect(narrow).to include("td.request { flex-basis: 100%; max-width: none; white-space: normal;")
      found = PageScript.run(page, [status(0.0, last_exits: [{ at: 1, worker: 0, pid: 5, cause: "signal", text: "was killed" }])])
      kinds = found.values_at("workers", "last").map { |body| body["children"].first["children"].last.values_at("className", "textContent") }
      expect(kinds).to eq([["text request", "1.0 s  GET /slow"], ["text request", "was killed"]])
    end
  end
end
