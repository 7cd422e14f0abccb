# frozen_string_literal: true

require "io/console"
require "pty"
require "support/app_chromium"

# What shows what the monitor tells: the command and the page. And the commands that have the server do something.
RSpec.describe "The monitor's", linux: "a thread with descriptors of its own", once: "a thread without Ruby" do
  include MonitorHelpers

  # How wide the text of a terminal is.
  def width(text) = text.gsub(/\e\[[\d;]*[A-Za-z]/, "").split(/\r?\n/).map(&:length).max

  describe "page in a browser" do
    before { skip AppChromium.driver_missing if AppChromium.driver_missing }

    # A server, and a browser at its page.
    def visited(**keywords)
      port = nil
      server = FreePort.keep { |free| serving(**keywords, options: { RequestTimeout: 0, ControlListen: port = free, ControlToken: MonitorHelpers::TOKEN }) }
      AppChromium.drive do |browser|
        browser.visit("http://127.0.0.1:#{port}/?token=#{MonitorHelpers::TOKEN}")
        yield server, browser
      end
    end

    it "shows who waits, and who has died and why" do
      visited(ru: HangingApp::RU) do |server, browser|
        hung(server, "/wait", 2)
        ask(server, "/", 5)
        text = ->(id) { browser.run("return document.getElementById('#{id}').innerText").to_s }
        Eventually.eventually { text.call("facts").match?(/\b5\s+clients wait/) }
        expect(text.call("workers")).to match(/\d s\s+GET \/wait$/)
        server.signal(:KILL, to: server.workers.first)
        Eventually.eventually { text.call("last").match?(/was killed by SIGKILL while serving GET \/wait/) && text.call("exits") == "signal 1" }
      ensure
        server.write("go", "")
      end
    end

    # The left edges of elements, in CSS pixels, and how often each is there.
    def edges(browser, selector)
      browser.run("return [...document.querySelectorAll('#{selector}')].map(one => Math.round(one.getBoundingClientRect().left))").tally
    end

    it "has its tiles and each worker's fields in columns on a telephone, with nothing beyond its edge" do
      visited(ru: %q(run ->(_env) { sleep(0.01) until File.exist?("go"); [200, {}, []] })) do |server, browser|
        hung(server, "/#{"long/" * 30}wait", 1)
        browser.narrow(390)
        Eventually.eventually { browser.run("return [document.querySelectorAll('#workers tr').length, innerWidth]") == [2, 390] }
        expect(browser.run("return [innerWidth, document.documentElement.scrollWidth]")).to eq([390, 390])
        tiles, fields = edges(browser, ".facts div"), edges(browser, "#workers td:not(.request)")
        expect([tiles.size, fields.size, tiles.values.min, fields.values.min]).to match([be_between(2, 4), 3, be >= 3, be >= 6])
      ensure
        server.write("go", "")
      end
    end

    it "goes on with the new master after a restart" do
      visited do |server, browser|
        Eventually.eventually { browser.run("return document.title") == "Fastrack serving" }
        old = server.master
        server.signal(:USR2)
        renewed = monitor.await { |status| status["pid"] != old && status["phase"] == "serving" }["pid"]
        # In between, a look may have failed.
        Eventually.eventually { browser.run("return [document.getElementById('about').innerText.includes('pid #{renewed},'), document.getElementById('lost').hidden]") == [true, true] }
      end
    end

    it "shows each worker" do
      visited do |_, browser|
        Eventually.eventually { browser.run("return document.title") == "Fastrack serving" }
        rows = browser.run("return [...document.querySelectorAll('#workers tr')].map(row => row.innerText.split(/\\s+/).slice(0, 4))")
        expect(rows).to match_array(monitor.status["workers"].map { |one| [one["nr"], one["pid"], 1, "idle"].map(&:to_s) })
        expect(browser.run("return document.querySelectorAll('#time rect').length")).to be > 5
      end
    end
  end

  describe "`fastrack status`" do
    describe "of a server with workers that are busy" do
      before(:context) do
        @server = hanging
        @held = hung(@server, "/wait", 1)
      end

      after(:context) do
        @server.write("go", "")
        @held.each(&:close)
      end

      it "finds it by its pid file, and shows its workers in 80 columns, without colours in a file" do
        output, status = fastrack("status", "-P", @pid_file)
        expect([status, output]).to match([0, /^Fastrack \S+  pid #{@server.master}  serving  generation 1  up /])
        @server.workers.each { |pid| expect(output).to match(/^ +\d +#{pid} (?:busy|idle) /) }
        expect([output, width(output)]).to match([/GET \/wait$/, be <= 80])
        expect(output).not_to include("\e")
      end

      it "gives JSON, and finds the server by its ConfigFile or its socket" do
        config = @server.write("c.rb", "pid #{@pid_file.inspect}\n")
        [["-c", config], ["--control", monitor.path]].each do |place|
          output, status = fastrack("status", "--json", *place)
          expect([status, JSON.parse(output)]).to match([0, include("pid" => @server.master, "phase" => "serving")])
        end
      end

      it "shows them with colours in a terminal of 80 columns, again each second, until Ctrl-C (--watch)" do
        ask(@server, "/#{"sleep" * 30}")
        text, status = watched("-P", @pid_file) { |shown| shown.scan("\e[H\e[J").size >= 3 && shown.end_with?("\n") }
        expect(status).to eq(0)
        expect(text).to match(/\e\[33mbusy\e\[0m.*\r\n +\d+\.\ds GET \/wait\r$/).and match(/\e\[32m(?:idle|serving)\e\[0m/)
        expect(width(text)).to be <= 80
        lines = text.gsub(/\e\[[\d;]*[A-Za-z]/, "").split("\r\n")
        @server.workers.each { |pid| expect(lines.grep(/^ +\d +#{pid} (?:busy|idle) /).size).to be >= 2 }
      end

      it "gives up on a master that is stopped, rather than wait for it" do
        @server.signal(:STOP)
        expect(fastrack("status", "--control", monitor.path)).to eq(["fastrack: the monitor at #{monitor.path} does not answer\n", 1])
      ensure
        @server.signal(:CONT)
      end
    end

    it "finds it by a ConfigFile that names its files from WorkingDirectory on" do
      server = serving(options: { Pid: nil }, config: %(working_directory __dir__\npid "app.pid"\n))
      output, status = fastrack("status", "--json", "-c", server.file("fastrack.rb"))
      expect([status, JSON.parse(output[/^\{.*/m])]).to match([0, include("pid" => server.master, "phase" => "serving")])
    end

    # What a terminal of 80 columns has got by the time that this is true of it.
    def watched(*place, &enough)
      command = [RbConfig.ruby, "-w", Server::COMMAND, "status", "--watch", *place]
      PTY.spawn(Server::CLEAN_ENVIRONMENT.merge("TERM" => "xterm", "NO_COLOR" => nil), *command, chdir: Dir.tmpdir) do |screen, keyboard, pid|
        screen.winsize = [24, 80]
        text = +""
        Eventually.eventually(Server::DEADLINE, -> { text }) do
          text << screen.readpartial(65_536) if screen.wait_readable(1)
          enough.call(text)
        end
        # As Ctrl-C.
        keyboard.write("\u0003")
        return [text, Process.wait2(pid).last.exitstatus]
      end
    end

    it "leaves a process alone that has the number of a server that is gone" do
      Dir.mktmpdir do |dir|
        stranger = spawn("sleep", "600")
        File.write(pid_file = File.join(dir, "app.pid"), "#{stranger}\n")
        File.utime(Time.now - 60, Time.now - 60, pid_file)
        expect(fastrack("stop", "-P", pid_file)).to match([/no server runs: .*app\.pid has no running process/, 1])
        expect(Process.wait(stranger, Process::WNOHANG)).to be_nil
      ensure
        Process.kill(:KILL, stranger)
        Process.wait(stranger)
      end
    end

    it "says that no server runs, with status 1" do
      expect(fastrack("status", "-P", "/nowhere/app.pid"))
        .to match([/\Afastrack: no server runs: nobody listens at \/nowhere\/app\.control, and/, 1])
      expect(fastrack("status")).to match([/\Afastrack: no server found: name its/, 1])
    end
  end

  it "commands are workers +1 and -1, phased-restart, restart, stop" do
    server = serving
    place = ["-P", @pid_file]
    expect(fastrack("workers", "+2", *place)).to match([/\ATTIN sent.*TTIN sent/m, 0])
    monitor.await { |status| status["workers_ready"] == 4 }
    expect(fastrack("workers", "-1", *place)).to match([/TTOU sent/, 0])
    monitor.await { |status| status["workers_wanted"] == 3 }
    expect(fastrack("phased-restart", *place)).to match([/\AHUP sent/, 0])
    monitor.await { |status| status["generation"] == 2 && status["workers_ready"] == 2 }
    expect(fastrack("restart", *place)).to match([/\AUSR2 sent/, 0])
    monitor.await { |status| status["pid"] != server.pid && status["phase"] == "serving" }
    server.wait
    expect([fastrack("stop", *place), server.processes]).to match([[/\ATERM sent to \d+\nstopped in/, 0], []])
    expect(fastrack("workers", "much")).to match([/\Afastrack: workers needs a number to add or remove/, 1])
  end
end
