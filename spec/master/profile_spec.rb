# frozen_string_literal: true

# `fastrack profile`: where the requests of a worker spend their time.
RSpec.describe "fastrack profile", linux: "signals for single threads" do
  include Folder

  let(:ru) { <<~'RUBY' }
    # Burns until there is a file.
    def burn(file)
      rounds = 0
      rounds += 1 until (rounds % 100_000).zero? && File.exist?(file)
    end
    run lambda { |env|
      File.write(File.expand_path("begun", __dir__), "")
      burn(File.expand_path("go", __dir__)) if env["PATH_INFO"] == "/burn"
      GC.start until env["PATH_INFO"] != "/collect" || File.exist?(File.expand_path("go", __dir__))
      [200, {}, ["ok"]]
    }
  RUBY

  def serve(**options)
    Server.ready(ru: ru, options: { MaxWorkers: 1, Pid: "app.pid", RequestTimeout: 0, GracefulTimeout: 60, **options })
  end

  def profile(server, *arguments, seconds: 1)
    Open3.capture2e(RbConfig.ruby, File.join(Server::ROOT, "exe/fastrack"), "profile", "--seconds", seconds.to_s, "-P", server.file("app.pid"), *arguments, chdir: server.dir)
  end

  def burning(server)
    Thread.new { server.get("/burn") }.tap { server.await_file("begun") }
  end

  def files(server, kind) = Dir.glob(server.file("fastrack-profile-0-*.#{kind}"))

  it "finds the method in which an app burns its time, in both files" do
    server = serve
    client = burning(server)
    output, status = profile(server)
    server.write("go", "")
    client.join
    expect([status.exitstatus, output]).to match([0, /\A\d+ samples of worker 0 \(pid #{server.workers.first}\)\n/])
    counts = File.readlines(files(server, "collapsed.txt").first).map { |line| line.match(/\A(.*) (\d+)\Z/).captures }.map { |stack, count| [stack, count.to_i] }
    burnt = counts.select { |stack, _| stack.match?(/(?:\A|;)(?:Object#)?burn \(.*config\.ru\)/) }.sum(&:last)
    expect(burnt.fdiv(counts.sum(&:last))).to be >= 0.95
    read = JSON.parse(File.read(files(server, "speedscope.json").first))
    sampled = read["profiles"].first
    expect(sampled).to include("type" => "sampled", "endValue" => counts.sum(&:last))
    expect(sampled["samples"].flatten.uniq.size).to eq(read["shared"]["frames"].size)
  end

  it "counts garbage collection as such, and reads no frames meanwhile" do
    server = serve
    client = Thread.new { server.get("/collect") }.tap { server.await_file("begun") }
    output, status = profile(server)
    server.write("go", "")
    client.join
    expect([status.exitstatus, output]).to match([0, /samples/])
    expect(File.read(files(server, "collapsed.txt").first)).to match(/^\(garbage collection\) \(native\) \d+$/)
  end

  it "divides the samples by what the threads have to do with the GVL, where that is measured" do
    measured = RUBY_VERSION.to_f >= 3.2
    server = serve(Timings: measured)
    client = burning(server)
    output, status = profile(server, "--gvl")
    server.write("go", "")
    client.join
    next expect([status.exitstatus, output]).to match([1, /set timings true/]) unless measured

    expect([status.exitstatus, output]).to match([0, /samples of worker 0/])
    states = File.readlines(files(server, "collapsed.txt").first).group_by { |line| line[/\A\(.*?\)/] }.transform_values { |lines| lines.sum { |line| line[/\d+$/].to_i } }
    expect(states.max_by(&:last).first).to eq("(runs)")
  end

  it "says that there was no request, and writes nothing" do
    server = serve
    output, status = profile(server)
    expect([status.exitstatus, output]).to match([1, /\Aworker 0 \(pid \d+\) had no request in these 1 s\n\z/])
    expect(files(server, "*")).to eq([])
  end

  it "refuses a worker that is not there, and a second profile while there is one" do
    server = serve
    output, status = profile(server, "--worker", "7")
    expect([status.exitstatus, output]).to eq([1, "fastrack: no profile: no worker 7 serves\n"])
    client = burning(server)
    first = Thread.new { profile(server, seconds: 60) }
    monitor = MonitorClient.new(server.file("app.control"))
    Eventually.eventually { monitor.get("/profile.json").body.include?('"running"') }
    output, status = profile(server)
    expect([status.exitstatus, output]).to match([1, /one at a time/])
    # The first one ends with its worker, which is replaced, and tells what there is.
    server.signal(:HUP)
    server.write("go", "")
    output, status = first.value
    client.join
    expect([status.exitstatus, output]).to match([0, /\A\d+ samples of worker 0/])
  end
  # What a worker says may be its app's.
  describe "in the master" do
    require_relative "../../lib/fastrack/master/profile"

    let(:handle) { worker(0) }
    let(:other) { worker(1) }
    let(:profile) { Fastrack::Profile.new(Struct.new(:all_but_first).new([handle, other])) }
    let(:monitor) { Struct.new(:profile_order, :published).new.tap { |one| one.define_singleton_method(:publish_profile) { |_, text| self.published = JSON.parse(text) } } }

    def worker(number)
      Struct.new(:nr, :pid, :signals) do
        def serving? = true
        def ready? = true
        def connected? = true
        def name = "worker #{nr}"
        def profile = self.signals += 1
      end.new(number, 1000 + number, 0)
    end

    def serve(order = nil)
      monitor.profile_order = order
      profile.serve(monitor)
      monitor.published
    end

    def say(kind, *words, from: handle) = profile.receive(Fastrack::Message.new(kind, words), from)

    before { stub_const("Fastrack::Engine", Module.new.tap { |engine| engine.const_set(:PROFILE_SIGNAL, 40) }) }

    it "keeps 1 MiB of what the worker says in its profile, and nothing before, after, or of another worker" do
      say("profile frame", 1, "early")
      expect(serve([0, 5])).to include("state" => "running", "frames" => [], "worker" => 0)
      say("profile frame", 2, "of another", from: other)
      say("profiled", from: other)
      2_000.times { |number| say("profile frame", number, "x" * 1_000) }
      2_000.times { say("profile stack", 1, "1 2 3") }
      say("profiled")
      found = serve
      expect(found).to include("state" => "done", "stacks" => [])
      expect([found["frames"].size, found["frames"].map(&:last).uniq]).to match([be_between(900, 1_048), ["x" * 1_000]])
      say("profile frame", 3, "late")
      expect(serve).to equal(found)
    end

    it "ends a profile whose worker says nothing more" do
      serve([1, 5])
      later = profile.due_at
      profile.step(later - 1)
      expect(other.signals).to eq(1)
      profile.step(later)
      expect([other.signals, profile.due_at > later]).to eq([2, true])
      profile.step(profile.due_at)
      expect(serve).to include("state" => "failed", "reason" => "worker 1 has not told its profile within 15 s")
      expect([profile.due_at, serve([7, 5])]).to match([nil, include("state" => "failed", "reason" => "no worker 7 serves")])
    end
  end
end
