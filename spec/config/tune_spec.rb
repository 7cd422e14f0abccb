# frozen_string_literal: true

require_relative "../../lib/fastrack/memory/limit"
require_relative "../../lib/fastrack/tune/report"
require_relative "../../lib/fastrack/tune/trial"
require_relative "../../lib/fastrack/tune/other_load"
require "pty"

RSpec.describe "fastrack tune", once: "processes and figures" do
  command = [RbConfig.ruby, "-w", Server::COMMAND, "tune", "--seconds", "2"]

  # Runs it in a directory of its own.
  define_method(:tune) do |app, *arguments, files: {}, &block|
    Dir.mktmpdir("fastrack-tune-spec") do |dir|
      files.merge("config.ru" => app).each { |name, text| File.write(File.join(dir, name), text) }
      output, errors, status = Open3.capture3(Server::CLEAN_ENVIRONMENT, *command, *arguments, chdir: dir)
      block.call(output, errors, status.exitstatus, dir)
    end
  end

  # Each worker comes to take some 150 MB, and mostly waits.
  dyno = 'run ->(_env) { $kept ||= "x" * (140 << 20); sleep 0.01; [200, {}, ["ok"]] }'

  it "recommends three workers for an app whose workers take 150 MB on a dyno of 512 MB" do
    tune(dyno, "--memory", "512M") do |output, errors, status|
      expect([status, errors]).to eq([0, ""])
      expect(output).to match(/^  a worker's own: at the start +\d+(\.\d+)? MB\n  a worker's own: warm +1[45]\d MB\n  a worker's own: at the end +1[45]\d MB$/)
      expect(output).to match(/^3 workers: the memory \(486 MB \(95 % of 512 MB\)\) allows 3, [\d.]+ CPUs \d+ \(requests compute \d+ % of their time\)$/)
      expect(output).to include("  max_workers 3\n", "  WEB_CONCURRENCY=3\n")
    end
  end

  it "gives the same as JSON, gets the paths of a file, and leaves no process behind" do
    app = <<~'RUBY'
      File.write("master", Process.pid.to_s)
      run lambda { |env|
        File.write("paths", "#{env["PATH_INFO"]}\n", mode: "a")
        [200, {}, ["ok"]]
      }
    RUBY
    tune(app, "--json", "--paths", "list", "--cpus", "1", "--memory", "1G", files: { "list" => "/a\n\n/b?c\n" }) do |output, errors, status, dir|
      expect([status, errors]).to eq([0, ""])
      found = JSON.parse(output)
      expect(found.fetch("recommendation").keys).to eq(%w[max_workers max_threads])
      expect(found.fetch("measured").first.keys).to include("threads", "shared", "loaded", "rate", "cpu", "waiting")
      expect(File.readlines("#{dir}/paths", chomp: true).uniq.sort).to eq(%w[/a /b])
      expect(ProcessTable.alive?(File.read("#{dir}/master").to_i)).to be(false)
    end
  end

  it "gets the paths of a list, and tells a terminal how long it takes" do
    Dir.mktmpdir("fastrack-tune-spec") do |dir|
      File.write(File.join(dir, "config.ru"), 'run ->(env) { File.write("paths", "#{env["PATH_INFO"]}\n", mode: "a") && [200, {}, ["ok"]] }')
      text = +""
      PTY.spawn(Server::CLEAN_ENVIRONMENT, *command, *%w[--paths /,/posts --seconds 1 --memory 1G --cpus 1], chdir: dir) do |screen, _, pid|
        loop { text << screen.readpartial(4096) }
      rescue Errno::EIO, EOFError
        expect([Process.wait2(pid).last.exitstatus, text]).to match([0, /\Ameasuring for some 2 s\r\n.*^  max_workers \d+\r$/m])
      end
      expect(File.readlines(File.join(dir, "paths"), chomp: true).uniq).to contain_exactly("/", "/posts")
    end
  end

  it "can run beside a server with the same ConfigFile: it leaves that one's logs and monitor alone" do
    app = 'run ->(_env) { File.write("seen", "") if File.exist?("app.control"); [200, {}, ["ok"]] }'
    config = %(log_format "json"\naccess_log "access.log"\ncontrol_path "app.control"\npid "app.pid"\n)
    tune(app, "-c", "app.rb", files: { "app.rb" => config }) do |output, errors, status, dir|
      expect([status, errors]).to eq([0, ""])
      expect(output).to include("  max_workers ")
      expect(Dir.children(dir)).to contain_exactly("config.ru", "app.rb")
    end
  end

  { "an app that does not boot" => ["raise 'no database'", [], /the app does not boot:\n.*no database/m],
    "an app that answers nothing but errors" => ["run ->(_env) { [500, {}, []] }", [], /the app answers no request/],
    "a memory that is no size" => ["run ->(_env) {}", %w[--memory much], /--memory must be a size in bytes, or such as 300M or 1G; got "much"/],
    "an unknown option" => ["run ->(_env) {}", %w[--mem0ry 1G], /invalid option: --mem0ry/] }.each do |what, (app, arguments, message)|
    it "says in one message what is wrong with #{what}" do
      tune(app, *arguments) do |_, errors, status|
        expect([status, errors]).to match([1, message])
      end
    end
  end

  # @param memory [Integer] megabytes
  # @return [Hash{Symbol => Integer}] the advice for these figures of one thread, on 2 CPUs
  def advice(cpu:, waiting:, memory: 4096, threads: 1)
    figures = { shared: 40 << 20, loaded: 60 << 20, cpu: cpu, waiting: waiting, answers: {} }
    measured = [1, threads].to_h { |count| [count, Fastrack::Tune::Trial::Result.new(**figures)] }
    report = Fastrack::Tune::Report.new(measured, memory: Fastrack::MemoryLimit.new(memory << 20, "here"), cpus: 2.0)
    JSON.parse(report.json, symbolize_names: true).fetch(:recommendation)
  end

  it "advises a worker per CPU for an app that computes, and more by the share of waiting, as far as memory allows" do
    expect(advice(cpu: 0.01, waiting: 0.0)).to eq(max_workers: 2, max_threads: 1)
    expect(advice(cpu: 0.005, waiting: 0.01)).to eq(max_workers: 6, max_threads: 1)
    expect(advice(cpu: 0.005, waiting: 0.01, memory: 300)).to eq(max_workers: 4, max_threads: 1)
  end

  it "advises threads that were tried where memory allows too few workers" do
    expect(advice(cpu: 0.005, waiting: 0.01, threads: 3)).to eq(max_workers: 6, max_threads: 1)
    expect(advice(cpu: 0.005, waiting: 0.01, memory: 300, threads: 3)).to eq(max_workers: 2, max_threads: 3)
  end

  # Lines that say why the advice may be wrong.
  describe "in doubt" do
    app = <<~'RUBY'
      run(lambda do |env|
        case env["PATH_INFO"]
        when "/missing" then [404, {}, []]
        when "/broken" then raise "trouble"
        when "/gone" then env["rack.hijack"].call.close && [200, {}, []]
        else [200, {}, ["ok"]]
        end
      end)
    RUBY

    def quick(app, *arguments) = tune(app, "--seconds", "0.5", "--memory", "4G", *arguments) { |*all| all }

    it "names each path that fails, with its status, and measures the others alone" do
      output, errors, status = quick(app, "--paths", "/,/missing,/broken,/gone")
      expect([status, errors]).to eq([0, ""])
      expect(output.scan(/^FAILED: GET (\S+): (.*) \(\d+ times?\): left out$/)).to contain_exactly(%w[/missing 404], %w[/broken 500], ["/gone", "no answer"])
      expect(output).to match(/^measured with 2 workers:\n.*^  requests +\d+\n  failed +0$/m).and include("  max_workers ")
    end

    it "gives no advice where no path is left, and status 1" do
      { "/missing" => /GET \/missing: 404 \(\d+ times\)\n\z/, "/missing,/gone" => /(?=.*GET \/missing: 404 ).*GET \/gone: no answer /m,
        "/broken" => /GET \/broken: 500 .*\n.*fastrack: GET \/broken failed: .*trouble/m }.each do |paths, message|
        output, errors, status = quick(app, "--paths", paths)
        expect([status, output]).to eq([1, ""])
        expect(errors).to match(/\Afastrack: the app answers no request with a status below 400:\n/).and match(message)
        expect(errors.lines.size).to be < 50
      end
    end

    it "has the statuses in JSON, too" do
      output, errors, status = quick(app, "--json", "--paths", "/,/missing,/gone")
      expect([status, errors]).to eq([0, ""])
      measured = JSON.parse(output)["measured"].first
      expect(measured["left_out"]).to contain_exactly("/missing", "/gone")
      expect(measured["answers"].transform_values(&:keys)).to eq("/" => ["200"], "/missing" => ["404"], "/gone" => ["none"])
    end

    it "prints a column for each number of threads" do
      output, = quick("run ->(_env) { sleep 0.05; [200, {}, []] }", "--threads", "3")
      expect(output).to match(/^  threads per worker +1 +3\n  requests +\d+ +\d+$/)
    end

    describe "on a machine that is busy with something else" do
      it "says so" do
        others = Array.new(Etc.nprocessors) { spawn(RbConfig.ruby, "-e", "loop {}") }
        output, = quick(app, "--seconds", "2")
        expect(output).to match(/^BUSY: other processes took \d+\.\d of #{Etc.nprocessors} CPUs meanwhile\. /)
      ensure
        others.each { |pid| Process.kill(:KILL, pid) && Process.wait(pid) }
      end

      # As proc(5) has it: ticks of the machine; and by pid, parent, user and system ticks, and those of children that have ended.
      def tell(taken, processes)
        allow(Fastrack::Tune::OtherLoad).to receive(:machine_stat).and_return(["cpu  #{taken} 0 0 900 0 55 66 0\n", "cpu0 1\n", "cpu1 1\n"])
        allow(Dir).to receive(:children).with("/proc").and_return(processes.keys.map(&:to_s))
        allow(File).to receive(:read) { |path| processes[path[/\d+/].to_i].then { |parent, *ticks| "7 (a) b) S #{[parent, *[0] * 9, *ticks, 0].join(" ")}\n" } }
      end

      it "counts what is not its own, nor its children's, nor those of interrupts" do
        clock = 0.0
        load = Class.new(Fastrack::Tune::OtherLoad) { define_method(:now) { clock } }
        ticks = Fastrack::ProcStat::TICKS.to_i
        tell(0, { 1 => [0, 0, 0, 0, 0], 7 => [1, 0, 0, 0, 0], 8 => [7, 0, 0, 0, 0], 9 => [8, 0, 0, 0, 0] })
        found = load.new(7)
        tell(4 * ticks, { 1 => [0, ticks, 0, 0, 0], 7 => [1, ticks, 0, 0, 0], 8 => [7, 0, ticks / 2, 0, 0], 9 => [8, 0, 0, ticks / 4, ticks / 4] })
        clock = 2.0
        # Of 4 s in 2 s of 2 CPUs, 2 s are its own.
        expect(found.cpus).to be_within(0.01).of(1.0)
      end
    end
  end
end
