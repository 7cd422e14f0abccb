# frozen_string_literal: true

require "json"
require_relative "../../lib/fastrack/proxy/program"

RSpec.describe "the proxy: what the master does when it boots, hangs or fails", once: "the program knows no Ruby" do
  def server = @server

  # Stands for the proxy's program: as long as the file `hang` or `fail` is there, it does so. It notes each try.
  program = <<~BASH
    #!/bin/bash
    cd "$(dirname "$0")"
    echo $$ >>tries
    if [ -e hang ]; then exec -a "fastrack proxy" sleep 600; fi
    if [ -e fail ]; then echo "error it is told to fail"; exit 1; fi
    exec -a "fastrack proxy" #{Fastrack::Proxy::Program.path} "$@"
  BASH

  # The ConfigFile is read by generation 0, and the proxy is started by the master.
  preload = <<~RUBY
    require "#{Server::LIB}/fastrack/proxy/program"
    path = File.expand_path("program", __dir__)
    File.chmod(0o755, path)
    Fastrack::Proxy::Program.singleton_class.prepend(Module.new { define_method(:path) { path } })
  RUBY
  settings = "control_path 'c.sock'\nerr_respawn_interval 0.1\n"

  define_method(:launch) do |config = ""|
    text = "bind 'ssl://127.0.0.1:0?cert=a.pem&key=a.key'\nmax_workers 1\n#{@settings = settings}#{config}"
    @server = Server.launch(ru: HttpApps.ru(:echo), fastrack: true, config: text, options: { "Host" => nil, "Port" => nil },
                            files: { "program" => program, "preload.rb" => preload, **Edge.files, **@files.to_h },
                            env: { "RUBYOPT" => "-r./preload.rb" })
  end

  def start(config = "") = launch(config).tap { server.await_listening && server.await_ready }
  def tries = File.readlines(server.file("tries"), chomp: true).map(&:to_i)
  def proxies = ProcessTable.children(server.master).select { |pid| ProcessTable.title(pid).match?(/\Afastrack proxy/) }
  def served? = Edge.curl(server).last.success?

  def status
    text, = Open3.capture2e("curl", "-sS", "--unix-socket", server.file("c.sock"), "http://localhost/status.json")
    JSON.parse(text)
  end

  # Has the proxy replaced by one that does what the file of this name says.
  def replace_by(name)
    server.write(name, "")
    Process.kill(:KILL, old = Edge.proxy(server))
    eventually { tries.last != old && tries.last }
  end

  it "a worker that dies while the proxy boots has a successor meanwhile" do
    start
    booting = replace_by("hang")
    before = server.workers - proxies
    Process.kill(:KILL, *before)
    eventually(Server::DEADLINE, -> { server.log }) { (server.workers - proxies - before).any? }
    expect([status["proxy"].slice("pid", "state"), status["phase"]]).to eq([{ "pid" => booting, "state" => "booting" }, "down"])
    expect(proxies).to eq([booting])
  end

  it "a proxy that is not ready within WorkerBootTimeout is replaced, and leaves no zombie" do
    start("worker_boot_timeout 3\n")
    hanging = replace_by("hang")
    eventually(Server::DEADLINE, -> { server.log }) { tries.last != hanging }
    server.remove("hang")
    eventually(Server::DEADLINE, -> { server.log }) { served? }
    expect(server.log).to include("the proxy (pid #{hanging}) has not been ready within 3 s (WorkerBootTimeout): killing it")
    eventually { ProcessTable.zombies(server.master).empty? }
  end

  it "a proxy that fails again and again is one line of the log, and leaves no zombie" do
    start
    replace_by("fail")
    eventually(Server::DEADLINE, -> { server.log }) { tries.size >= 6 }
    expect(server.log.scan(/the proxy does not start.*/)).to eq(["the proxy does not start: it is told to fail; trying again every 0.5 s"])
    server.remove("fail")
    eventually { served? }
    eventually { ProcessTable.zombies(server.master).empty? }
  end

  it "a proxy that is stopped by SIGSTOP is told by the status, and replaced after WorkerTimeout" do
    start("worker_timeout 4\n")
    Process.kill(:STOP, old = Edge.proxy(server))
    silent = eventually(Server::DEADLINE) { status.then { |found| found if found["proxy"]["state"] == "silent" } }
    expect([silent["proxy"]["pid"], silent["phase"], silent["serves"]]).to eq([old, "down", false])
    eventually(Server::DEADLINE, -> { server.log }) { !ProcessTable.alive?(old) && served? }
    expect(server.log).to include("the proxy (pid #{old}) has said nothing for 4 s (WorkerTimeout): killing it")
    eventually { status["phase"] == "serving" }
  end

  it "HUP is done when the proxy has taken its settings: one that is stopped is replaced before" do
    start("worker_timeout 4\n")
    Process.kill(:STOP, old = Edge.proxy(server))
    server.reload
    server.await_ready(2)
    expect([ProcessTable.alive?(old), served?]).to eq([false, true])
  end

  it "HUP fails where another proxy does not start, and the old one serves on" do
    start
    old = Edge.proxy(server)
    client = Edge.connect(server)
    server.write("fail", "")
    server.reload("bind 'ssl://127.0.0.1:0?cert=a.pem&key=a.key'\nmax_workers 1\nproxy_threads 3\n#{@settings}")
    server.await_log("HUP: the new code is given up: it is told to fail; the old code serves on")
    expect([proxies, Edge.ask(client).first]).to match([[old], /\AHTTP\/1.1 200 /])
    client.close
  end

  it "a server whose first proxy fails does not start, and tells why" do
    @files = { "fail" => "" }
    launch
    expect([server.wait.exitstatus, server.log]).to match([1, /the proxy does not start: it is told to fail/])
    expect(server.processes).to eq([])
  end

  it "a server whose first proxy hangs is told to stop at once" do
    @files = { "hang" => "" }
    launch
    server.await_file("tries")
    server.await_listening
    expect(server.stop.exitstatus).to eq(0)
    eventually { tries.none? { |pid| ProcessTable.alive?(pid) } }
  end
end
