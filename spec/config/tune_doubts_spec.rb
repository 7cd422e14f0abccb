# frozen_string_literal: true

require_relative "../../lib/fastrack/tune/other_load"

# What `fastrack tune` says that its advice must not rest on.
RSpec.describe "fastrack tune", once: "processes and figures" do
  app = <<~'RUBY'
    run(lambda do |env|
      case env["PATH_INFO"]
      when "/missing" then [404, {}, []]
      when "/broken" then raise "trouble"
      when "/gone" then env["rack.hijack"].call.close && [200, {}, []]
      when "/moved" then [301, { "location" => "/" }, []]
      else [200, {}, ["ok"]]
      end
    end)
  RUBY

  def tune(app, *arguments)
    Dir.mktmpdir("fastrack-tune-spec") do |dir|
      File.write(File.join(dir, "config.ru"), app)
      command = [RbConfig.ruby, "-w", Server::COMMAND, "tune", "--seconds", "0.5", "--memory", "4G", *arguments]
      Open3.capture3(Server::CLEAN_ENVIRONMENT, *command, chdir: dir)
    end
  end

  it "names each path that fails, with its status, and measures the others alone" do
    output, errors, status = tune(app, "--paths", "/,/missing,/broken,/gone")
    expect([status.exitstatus, errors]).to eq([0, ""])
    expect(output.scan(/^FAILED: GET (\S+): (.*) \(\d+ times?\): left out$/)).to contain_exactly(%w[/missing 404], %w[/broken 500], ["/gone", "no answer"])
    expect(output).to match(/^measured with 2 workers: \d+ requests$/).and include("  max_workers ")
  end

  it "gives no advice where no path is left, and status 1" do
    { "/missing" => /GET \/missing: 404 \(\d+ times\)\n\z/, "/missing,/gone" => /GET \/missing: 404 .*\n  GET \/gone: no answer /,
      "/broken" => /GET \/broken: 500 .*\n.*fastrack: GET \/broken failed: .*trouble/m }.each do |paths, message|
      output, errors, status = tune(app, "--paths", paths)
      expect([status.exitstatus, output]).to eq([1, ""])
      expect(errors).to match(/\Afastrack: the app answers no request with a status below 400:\n/).and match(message)
      expect(errors.lines.size).to be < 50
    end
  end

  it "has the statuses in JSON, too" do
    output, errors, status = tune(app, "--json", "--paths", "/,/missing,/gone")
    expect([status.exitstatus, errors]).to eq([0, ""])
    measured = JSON.parse(output)["measured"].first
    expect(measured["left_out"]).to contain_exactly("/missing", "/gone")
    expect(measured["answers"].transform_values(&:keys)).to eq("/" => ["200"], "/missing" => ["404"], "/gone" => ["none"])
  end

  it "prints the recommended row and two on either side" do
    output, = tune("run ->(_env) { sleep 0.05; [200, {}, []] }", "--cpus", "8")
    rows = output.lines.grep(/^ +\d+ +1 +\d+ MB/)
    expect([rows.size, rows.count { |row| row.include?("<-") }]).to match([3..5, 1])
  end

  describe "on a machine that is busy with something else" do
    it "says so" do
      others = Array.new(Etc.nprocessors) { spawn(RbConfig.ruby, "-e", "loop {}") }
      output, = tune(app, "--seconds", "2")
      expect(output).to match(/^BUSY: other processes took \d+\.\d of #{Etc.nprocessors} CPUs meanwhile\. /)
    ensure
      others.each { |pid| Process.kill(:KILL, pid) && Process.wait(pid) }
    end

    # As proc(5) has it: ticks of the machine; and by pid, parent, user and system ticks, and those of children that have ended.
    def write(dir, taken, processes)
      File.write(File.join(dir, "stat"), "cpu  #{taken} 0 0 900 0 55 66 0\ncpu0 1\ncpu1 1\n")
      processes.each do |pid, (parent, *ticks)|
        FileUtils.mkdir_p(File.join(dir, pid.to_s))
        File.write(File.join(dir, pid.to_s, "stat"), "#{pid} (a) b) S #{parent} #{Array.new(9, 0).join(" ")} #{ticks.join(" ")} 0\n")
      end
    end

    it "counts what is not its own, nor its children's, nor those of interrupts" do
      Dir.mktmpdir do |dir|
        clock = 0.0
        load = Class.new(Fastrack::Tune::OtherLoad) { define_method(:now) { clock } }
        ticks = Fastrack::Tune::OtherLoad::TICKS.to_i
        write(dir, 0, { 1 => [0, 0, 0, 0, 0], 7 => [1, 0, 0, 0, 0], 8 => [7, 0, 0, 0, 0], 9 => [8, 0, 0, 0, 0] })
        found = load.new(7, proc: dir)
        write(dir, 4 * ticks, { 1 => [0, ticks, 0, 0, 0], 7 => [1, ticks, 0, 0, 0], 8 => [7, 0, ticks / 2, 0, 0], 9 => [8, 0, 0, ticks / 4, ticks / 4] })
        clock = 2.0
        # Of 4 s in 2 s of 2 CPUs, 2 s are its own.
        expect(found.cpus).to be_within(0.01).of(1.0)
      end
    end
  end
end
