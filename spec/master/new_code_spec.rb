# frozen_string_literal: true

require "open3"

# HUP has a process of its own load the app anew. The old code serves until the new code does.
RSpec.describe "HUP with new code", linux: "a subreaper (prctl(2))" do
  workers = 4

  def app(version, at_load = "") = <<~RUBY
    #{at_load}
    run ->(_) { [200, {}, ["#{version} \#{Process.pid}"]] }
  RUBY

  def start(config: nil, **options)
    Server.ready(ru: app("v1"), config: config, fastrack: true,
                 options: { MaxWorkers: 4, MaxRequestPerChild: 0, ControlPath: "control", ErrRespawnInterval: 0.1, **options })
  end

  # @return [Array(String, Integer)] what `fastrack reload` says, and its status
  def reload(server)
    command = [Server::CLEAN_ENVIRONMENT, RbConfig.ruby, "-w", Server::COMMAND, "reload", "--control", "control"]
    output, status = Open3.capture2e(*command, chdir: server.dir, stdin_data: "")
    [output, status.exitstatus]
  end

  # @return [Array<String>] versions that so many answers name
  def versions(server) = Array.new(20) { server.get.body[/\w+/] }.uniq

  it "replaces the workers one by one, and no request is lost" do
    server = start
    before = server.workers
    server.write("config.ru", app("v2"))
    loop = ClientLoop.run(server) { expect(reload(server).last).to eq(0) }
    expect([loop.failures, loop.bodies.map { |body| body[/\w+/] }.uniq, versions(server), server.workers & before]).to eq([[], %w[v1 v2], ["v2"], []])
  end

  it "loads from where the folder's link points now" do
    server = nil
    Dir.mktmpdir do |releases|
      %w[1 2].each { |number| Folder.write("#{releases}/#{number}", "config.ru", app("v#{number}")) }
      File.symlink("1", "#{releases}/current")
      server = start(config: "working_directory #{"#{releases}/current".inspect}\napp \"config.ru\"\n")
      expect(versions(server)).to eq(["v1"])
      File.symlink("2", "#{releases}/next")
      File.rename("#{releases}/next", "#{releases}/current")
      expect([reload(server).last, versions(server)]).to eq([0, ["v2"]])
      server.stop
    end
  end

  it "has a constant that the new code no longer has gone, and one that it has changed as it is now" do
    server = start
    server.write("config.ru", "OLD = 1\n#{app("v2")}")
    reload(server)
    server.write("config.ru", "NEW = defined?(OLD).inspect\n#{app('#{NEW}')}")
    expect([reload(server).last, versions(server)]).to eq([0, ["nil"]])
  end

  at_load = {
    "raises" => ['raise "no such table"', /no such table/],
    "cannot be parsed" => ["def (", /syntax error|unexpected/i],
    "lacks a library" => ['require "no/such/library"', %r{no/such/library}],
    "exits" => ["exit 3", /exit/],
    "ends with exit!" => ["exit! 3", /3/],
    "is killed" => ["Process.kill(:KILL, Process.pid)", /KILL/],
    "crashes" => ["Process.kill(:SEGV, Process.pid)", /SEGV|ABRT/],
    "hangs" => ["sleep", /WorkerBootTimeout|worker_boot_timeout|took/]
  }

  # What must hold once `fastrack reload` has said why the new code does not serve.
  def expect_old_code(server, before, reason, bodies)
    output, status = reload(server)
    expect(output).to match(reason)
    expect(status).to eq(1)
    server.await_workers(before.size) { |found| found == before }
    expect([versions(server), bodies.call.map { |body| body[/\w+/] }.uniq]).to eq([["v1"], ["v1"]])
  end

  at_load.each do |what, (code, reason)|
    it "that #{what} at its load leaves the old workers serving, and says so" do
      server = start(WorkerBootTimeout: 3)
      before = server.workers
      server.write("config.ru", app("v2", code))
      loop = ClientLoop.run(server) { |clients| expect_old_code(server, before, reason, -> { clients.bodies }) }
      expect(loop.failures).to eq([])
      expect(ProcessTable.zombies(server.master)).to eq([])
      server.write("config.ru", app("v3"))
      expect([reload(server).last, versions(server)]).to eq([0, ["v3"]])
    end
  end

  hooks = { "before_fork" => "before_fork { raise \"no such hook\" }", "after_fork" => "after_fork { raise \"no such hook\" }",
            "after_fork of the third worker" => "after_fork { |_, worker| raise \"no such hook\" if worker.nr == 2 }" }

  hooks.each do |what, config|
    it "whose #{what} raises leaves the old code serving in all workers, and says so" do
      server = start(config: "# none\n")
      server.write("config.ru", app("v2"))
      server.write("fastrack.rb", config)
      output, status = nil
      loop = ClientLoop.run(server) { output, status = reload(server) }
      expect([loop.failures, status, output]).to match([[], 1, /no such hook/])
      eventually(40, -> { server.log }) { versions(server) == ["v1"] && server.workers.size == workers }
      server.write("fastrack.rb", "# none\n")
      expect([reload(server).last, versions(server)]).to eq([0, ["v2"]])
    end
  end
end
