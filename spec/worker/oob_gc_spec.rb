# frozen_string_literal: true

require_relative "../../lib/fastrack/gc/oob_gc"

RSpec.describe "Out-of-band GC", :quiet, exec: "what is in the heap decides" do
  # Answers with the collections so far. Ruby makes none of its own accord, so that those are all ours.
  let(:counting) { 'run ->(_env) { [200, {}, ["#{GC.count} #{GC.disable}"]] }' }
  let(:disabled) { "after_fork { GC.disable }" }

  # What happened between each two requests.
  def steps(numbers) = numbers.each_cons(2).map { |one, two| two - one }

  it "A17 runs after every MaxGCPerRequest responses, only if it is asked for, and leaves GC disabled where the app has disabled it" do
    found = [true, false].map do |asked|
      server = Server.start(ru: counting, options: { MaxWorkers: 1, OobGC: asked, MaxGCPerRequest: 5 }, config: disabled)
      answers = Array.new(16) { server.get.body.split }
      [steps(answers.map { |count, _| count.to_i }), answers.map(&:last).uniq]
    end
    expect(found).to eq([[[0, 0, 0, 0, 1] * 3, ["true"]], [[0] * 15, ["true"]]])
  end

  it "A3 each worker draws its interval once, from MinGCPerRequest to MaxGCPerRequest" do
    limits = { MinGCPerRequest: 2, MaxGCPerRequest: 3, MinRequestPerChild: 12, MaxRequestPerChild: 12 }
    server = Server.start(ru: 'run ->(_env) { [200, {}, ["#{Process.pid} #{GC.count}"]] }', config: disabled,
                          options: { MaxWorkers: 1, OobGC: true, **limits })
    # The answers of a worker are 0 0 1 1 2 2 and so on, or 0 0 0 1 1 1; a full mark that is due may come before its turn. It may
    # answer more than 12 while two before it are still at their ends.
    workers = Array.new(240) { server.get.body.split.tap { eventually { server.workers.size <= 2 } } }.group_by(&:first).values.select { |answers| answers.size >= 12 }
    drawn = workers.map { |answers| answers.tally.values.max }
    expect([workers.size >= 10, drawn.uniq.sort]).to eq([true, [2, 3]])
  end

  it "A17 runs when the response has left and the connection is closed" do
    server = Server.start(ru: counting, fastrack: true, options: { MaxWorkers: 1, OobGC: true, MaxGCPerRequest: 1 }, config: <<~'RUBY')
      GC.singleton_class.prepend(Module.new do
        def start(**)
          File.write("collecting", "")
          sleep 0.01 until File.exist?("go")
          super
        end
      end)
      # The master may collect before it forks.
      File.write("go", "")
      before_fork { %w[go collecting].each { |file| File.unlink(file) if File.exist?(file) } }
    RUBY
    # Returns once the server has closed; the collection has not ended then, for it waits for us.
    expect(server.get.status).to eq(200)
    eventually { File.exist?(File.join(server.dir, "collecting")) }
    server.write("go", "")
    expect(server.get.status).to eq(200)
  end

  # Each response finds clients waiting or not; a full mark is due all the time.
  { "when it is due and nobody waits, and not before" => [100, [true, true, true, false, true], [4]],
    "after the interval all the same, where clients always wait" => [4, [true] * 8, [4, 8]] }.each do |what, (interval, waits, at)|
    it "A17 makes a full mark #{what}" do
      made = []
      allow(GC).to receive(:latest_gc_info).and_return(:oldgen)
      allow(GC).to receive(:start) { |full_mark: true| made << full_mark }
      waiting = nil
      gc = Fastrack::OobGC.new(interval, -> { waiting }, -> { false }, deferrable: true)
      found = waits.each.with_index(1).filter_map do |each, number|
        waiting = each
        gc.call
        number if made.pop
      end
      expect(found).to eq(at)
    end
  end

  # The app makes many objects that live for a while, which lets the old generation grow, and answers with the number of full marks before
  # and after it.
  it "A17 no full mark is made during a request, but some between requests, where Ruby can leave them to the server" do
    skip "Ruby #{RUBY_VERSION} cannot" unless Fastrack::OobGC::DEFERRABLE
    allocating = <<~'RUBY'
      kept = []
      run lambda { |_env|
        before = GC.stat(:major_gc_count)
        kept << Array.new(20_000) { |n| "object #{n}" }
        kept.shift if kept.size > 20
        [200, {}, ["#{before} #{GC.stat(:major_gc_count)}"]]
      }
    RUBY
    marks, others = [{ OobGC: true }, {}].map do |options|
      server = Server.start(ru: allocating, options: { MaxWorkers: 1, **options })
      Array.new(150) { server.get.body.split.map(&:to_i) }
    end
    expect(marks.map { |before, after| after - before }.uniq).to eq([0])
    expect(marks.last.last).to be > marks.first.first
    # So that this shows something.
    expect(others.map { |before, after| after - before }.max).to be > 0
  end
end
