# frozen_string_literal: true

RSpec.describe "Recycling" do
  # Pids of the workers that answered so many requests, one after the other. Before each request the master has waited for all workers that
  # have ended, but for the last one.
  def unhurried_answers(server, count)
    Array.new(count).each_with_object([]) do |_, pids|
      pids << server.get.body.to_i
      eventually { (pids.uniq - [pids.last]).none? { |pid| ProcessTable.entry(pid) } }
    end
  end

  # A successor may be asked before the last request of its predecessor; the last two may not be at their ends. That one of three limits
  # does not turn up in 55 draws has p < 1e-9.
  { "A9 a worker ends after exactly as many requests as it may, and no request fails for it" => [5..5, 30],
    "A3 each worker draws its own limit, from Min to Max" => [2..4, 230] }.each do |what, (limits, requests)|
    it what do
      server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 1, MinRequestPerChild: limits.min, MaxRequestPerChild: limits.max })
      expect(unhurried_answers(server, requests).tally.values[0...-2].uniq.sort).to eq(limits.to_a)
    end
  end

  it "A9 with a limit of 1 each request has a worker of its own" do
    server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 1, MaxRequestPerChild: 1 })
    expect(unhurried_answers(server, 10).uniq.size).to eq(10)
    eventually { ProcessTable.zombies(server.master).empty? && server.workers.size == 1 }
  end

  it "A3 with MaxRequestPerChild 0 a worker is never recycled" do
    server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 1, MaxRequestPerChild: 0 })
    # More than any default would allow.
    expect(Array.new(1100) { server.get.body.to_i }.uniq.size).to eq(1)
  end

  # Starts are slow and limits low: all workers want to go all the time. Each notes when it is ready, and when it ends.
  let(:config) { <<~'RUBY' }
    $note = ->(what) { File.write("notes", "#{Process.clock_gettime(Process::CLOCK_MONOTONIC)} #{what}\n", mode: "a") }
    before_worker_shutdown { $note.call("ends") }
    after_fork { sleep 0.05; $note.call("ready") }
  RUBY

  let(:app) { "run ->(_env) { sleep 0.005; [200, {}, []] }" }

  # How many workers there were, at each change of it.
  def capacities(notes)
    changes = notes.map { |time, what| [time.to_f, what == "ready" ? 1 : -1] }
    changes.sort.each_with_object([0]) { |(_, change), counts| counts << (counts.last + change) }
  end

  it "A9 capacity never falls below MaxWorkers - 1 by recycling under load, and no request fails" do
    server = Server.start(ru: app, options: { MaxWorkers: 3, MaxRequestPerChild: 20 }, config: config)
    eventually { server.lines_of("notes").size == 3 }
    loop = ClientLoop.run(server, paths: ["/"] * 6, pause: 0) { eventually(30) { server.lines_of("notes").size > 60 } }
    expect(loop.failures).to eq([])
    # The first three are the start. With four, a successor is there before the other has ended, and with five before two have.
    expect(capacities(server.lines_of("notes").map(&:split)).drop(3).minmax).to match([2, be <= 5])
  end
end
