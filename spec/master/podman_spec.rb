# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/kept_peer"
require_relative "../support/podman"
require "etc"

# What is done to a container, to one that a real runtime has made.
RSpec.describe "In a container", once: "processes" do
  # Answers once it is let go.
  let(:app) { <<~RUBY }
    run(lambda do |env|
      case env["PATH_INFO"]
      when "/slow"
        File.write("begun", "")
        sleep 0.01 until File.exist?("go")
      when "/leave"
        system("sleep 0.2 &")
      end
      [200, { "content-type" => "text/plain" }, [Process.ppid.to_s]]
    end)
  RUBY

  around do |example|
    Podman.open do |podman|
      @podman = podman
      skip podman.problem if podman.problem
      example.run
    end
  end

  def start(ru = app, **options)
    Server.start(ru: ru, fastrack: true, environment: "production", options: options, wrapper: @podman.wrapper)
  end

  it "is process 1, and podman stop lets it answer what clients have asked, on kept connections too" do
    server = start(MaxWorkers: 2)
    master = @podman.master
    eventually { ProcessTable.children(master).size == 2 }
    peer = KeptPeer.new(server)
    expect(peer.get("/").body).to eq("1")
    peer.ask("/slow")
    eventually { File.exist?(File.join(server.dir, "begun")) }
    stopping = Thread.new { @podman.run("stop", "--time", "60", @podman.name) }
    # The other one has gone.
    eventually { ProcessTable.children(master).size == 1 }
    server.write("go", "")
    answer = peer.answer
    expect([answer.status, answer.headers["connection"]]).to eq([200, "close"])
    expect(peer.closed_without_a_word?).to be(true)
    # 137 would be podman's SIGKILL.
    expect(server.wait.exitstatus).to eq(0)
    stopping.join
  end

  it "reaps what the app leaves behind, replaces its workers at HUP, and serves on at USR2" do
    server = start(MaxWorkers: 2)
    master = @podman.master
    5.times { expect(server.get("/leave").status).to eq(200) }
    eventually { ProcessTable.children(master).size == 2 && ProcessTable.zombies(master).empty? }
    before = ProcessTable.children(master)
    @podman.run("kill", "--signal", "HUP", @podman.name)
    eventually { ProcessTable.children(master).then { |found| found.size == 2 && (found & before).empty? } }
    @podman.run("kill", "--signal", "USR2", @podman.name)
    eventually { server.log.include?("fastrack: USR2 is ignored: this is process 1, whose end is that of its container; replace the container") }
    expect(server.get.body).to eq("1")
    expect(server.stop.exitstatus).to eq(0)
  end

  # Two CPUs would have two or more.
  it "has by MaxWorkers=auto no more workers than the container's memory has room for", if: Etc.nprocessors > 1 do
    server = start("$kept = 'x' * (350 << 20)\n#{app}", MaxWorkers: "auto", PreloadApp: true)
    eventually { server.log.match?(/workers auto: starting with 1 \(.*95 % of the cgroup's #{Podman::MEMORY} MB/) }
    expect(server.get.body).to eq("1")
    expect(server.stop.exitstatus).to eq(0)
  end
end
