# frozen_string_literal: true

# What operators, their scripts and the machine can do to a server, a line each: what a client sees whose request is in the app
# at that moment. A second later the service is what it was. Signals, deploys and deadlines have files of their own. Full
# disks and logs that nobody reads are in faults_spec.rb and connections/faults_spec.rb.
RSpec.describe "A hostile operator", once: "signals and files are the master's, whatever Ruby runs it" do
  # To each worker.
  all = ->(name) { ->(server) { server.workers.each { |pid| server.signal(name, to: pid) } } }
  master = ->(*names) { ->(server) { names.each { |name| server.signal(name, to: server.master) } } }

  # With a file there, as long as the ConfigFile is broken.
  broken = lambda do |name, line|
    lambda do |server|
      server.write("broken", "")
      lines = -> { server.log.scan(line).size }
      before = lines.call
      server.signal(name, to: server.master)
      Eventually.eventually { lines.call > before }
    ensure
      FileUtils.rm_f(File.join(server.dir, "broken"))
    end
  end

  acts = {
    "sends HUP to the master" => [master[:HUP], 200],
    "sends HUP many times" => [->(server) { 10.times { master[:HUP].call(server) && sleep(0.02) } }, 200],
    "reloads a broken ConfigFile" => [broken[:HUP, "HUP changes nothing"], 200],
    "sends USR1 to the master" => [master[:USR1], 200], "sends TTIN and TTOU" => [master[:TTIN, :TTOU], 200],
    "sends WINCH, and then HUP" => [->(server) { master[:WINCH].call(server) && Eventually.eventually { server.workers.size == 1 } && master[:HUP].call(server) }, 200],
    # Not TTIN and TTOU: what is pending at once comes in any order, and HUP between them would leave another number of workers.
    "sends all at once" => [master[:HUP, :USR1, :CHLD, :HUP, :URG], 200],
    "stops the master for a moment" => [->(server) { master[:STOP].call(server) && sleep(0.3) && master[:CONT].call(server) }, 200],
    "sends TERM to the workers" => [all[:TERM], 200], "sends QUIT to the workers" => [all[:QUIT], 200],
    "sends workers what is the master's" => [->(server) { %i[INT HUP USR2 TTIN TTOU WINCH CHLD].each { |name| all[name].call(server) } }, 200],
    "sends USR1 to the workers" => [all[:USR1], 200], "kills the workers" => [all[:KILL], :nothing],
    "sends ABRT to the workers" => [all[:ABRT], :nothing], "sends SEGV to the workers" => [all[:SEGV], :nothing],
    "stops the workers" => [->(server) { server.workers.tap { |pids| all[:STOP].call(server) && Eventually.eventually { (server.workers & pids).empty? } } }, :nothing],
    "stops the workers for a moment" => [->(server) { all[:STOP].call(server) && sleep(0.2) && all[:CONT].call(server) }, 200],
    "removes the pid file" => [->(server) { File.unlink(File.join(server.dir, "app.pid")) }, 200],
    "deploys what does not start" => [broken[:USR2, "this one carries on"], 200]
  }

  context "that has" do
    before(:context) do
      serve_hostile(options: { Pid: "app.pid", GracefulTimeout: 10 }, config: "raise 'broken' if File.exist?('broken')\n")
    end

    acts.each do |what, (deed, seen)|
      it "#{what}: a client sees #{seen.inspect}, and nobody else anything" do
        expect(view_during { deed.call(server) }).to eq(seen)
        expect_order
      end
    end
  end

  shell = ->(line) { ["sh", "-c", line, "sh"] }

  # How it is started. The app and the server log what they have to.
  { "a log that has no room" => { wrapper: shell['exec "$@" 2>/dev/full'] },
    "no stdin and no stderr" => { wrapper: shell['exec "$@" <&- 2>&-'] },
    "64 descriptors" => { wrapper: shell['ulimit -n 64; exec "$@"'] },
    "files of no more than 4 MB" => { wrapper: shell['ulimit -f 8000; exec "$@"'] },
    "no core files, and a low priority" => { wrapper: shell['ulimit -c 0; exec nice -n 5 "$@"'] },
    "an environment with nothing in it" => { wrapper: ["env", "-i", "PATH=#{ENV.fetch("PATH")}"] } }.each do |what, how|
    it "gives it #{what}: clients see 200 and 500 as ever, also when workers die and reload" do
      serve_hostile(["raise 'no' * 1000", "warn('w' * 1000)", "exit!"], **how)
      expect(%w[/0 /1 /2].map { |path| view(path) }).to eq([500, 200, :nothing])
      expect(view_during { %i[HUP USR1].each { |name| server.signal(name, to: server.master) } }).to eq(200)
      expect_order
    end
  end
end
