# frozen_string_literal: true

# What becomes of a master whose children's children are given to it by the kernel.
RSpec.describe "A master that adopts processes", once: "processes" do
  ORPHANS = <<~'RUBY'
    $loaded = spawn("exit 6")
    run ->(env) { system("until [ -e go ]; do sleep 0.05; done &") if env["PATH_INFO"] == "/leave"; [200, {}, [Process.pid.to_s]] }
  RUBY

  # Its hooks start a process and wait for it much later.
  HOOKS = <<~'RUBY'
    before_fork { $own ||= [$loaded, spawn("exit 7"), IO.popen("exit 8").pid, fork { exit!(9) }] }
    after_worker_exit do
      File.write("statuses", $own.map { |pid| Process.wait2(pid).last.exitstatus }.join(" "))
      $own = []
    end
  RUBY

  PROCESS_1 = %w[unshare --pid --fork --mount-proc --kill-child=TERM].freeze

  # prctl(2), PR_SET_CHILD_SUBREAPER, which stays over exec.
  SUBREAPER = [RbConfig.ruby, "-e", "syscall(#{{ "aarch64" => 167 }.fetch(Etc.uname[:machine], 157)}, 36, 1, 0, 0, 0); exec(*ARGV)"].freeze

  def start(wrapper, ru = ORPHANS)
    possible = system(*wrapper, "true", %i[out err] => File::NULL)
    skip "#{wrapper.first} is not allowed to do that here" unless possible
    # Once it is ready, what hooks have started is over.
    server = Server.ready(ru: ru, fastrack: true, options: { MaxWorkers: 2, ErrRespawnInterval: 0.1 }, wrapper: wrapper, config: HOOKS)
    master = wrapper == PROCESS_1 ? ProcessTable.children(server.pid).first : server.pid
    workers = eventually { ProcessTable.workers(master).then { |found| found if found.size == 2 } }
    [server, master, workers]
  end

  { "as process 1" => [PROCESS_1], "as a subreaper" => [SUBREAPER, { linux: "subreapers (prctl(2))" }] }.each do |what, (wrapper, tags)|
    it "D6 reaps them #{what}, and leaves to a hook what the hook has started", **tags.to_h do
      server, master, workers = start(wrapper)
      5.times { server.get("/leave") }
      eventually { ProcessTable.children(master).size >= 8 }
      server.write("go", "")
      # Those of the hooks are left, which are of the process that runs the hooks.
      eventually { ProcessTable.children(master).size == 3 && ProcessTable.zombies(master, *ProcessTable.molds(master)).size == 4 }
      Process.kill(:KILL, workers.first)
      eventually { server.lines_of("statuses").any? }
      expect(server.lines_of("statuses")).to eq(["6 7 8 9"])
      eventually { ProcessTable.zombies(master, *ProcessTable.molds(master)).empty? }
      Process.kill(:TERM, master)
      expect(server.wait.exitstatus).to eq(0)
    end
  end

  it "D6 answers as process 1 what has begun when TERM arrives, and ends its container with status 0" do
    server, master, = start(PROCESS_1, Rackups::GATE)
    slow = SlowRequest.new(server)
    Process.kill(:TERM, master)
    # Its other worker has gone.
    eventually { ProcessTable.workers(master).size == 1 }
    expect([slow.finish.status, server.wait.exitstatus]).to eq([200, 0])
  end

  it "D6 refuses USR2 as process 1, because its end would be that of the container, and serves on" do
    server, master, workers = start(PROCESS_1)
    Process.kill(:USR2, master)
    eventually { server.log.include?("fastrack: USR2 is ignored: process 1 is not replaced, because its end would end the container; replace the container") }
    expect([server.get.status, ProcessTable.workers(master)]).to eq([200, workers])
    Process.kill(:TERM, master)
    expect(server.wait.exitstatus).to eq(0)
  end
end
