# frozen_string_literal: true

# A process that may not open more files, for a while (RLIMIT_NOFILE, ENFILE).
RSpec.describe "No descriptor to be had", linux: "prlimit(1)", once: "processes of the master" do
  before { skip "no prlimit" unless ENV.fetch("PATH").split(":").any? { |dir| File.executable?(File.join(dir, "prlimit")) } }

  def limit(pid, number) = system("prlimit", "--pid", pid.to_s, "--nofile=#{number}:", exception: true)

  # Lets the process open so many files more.
  def leave(pid, count)
    taken = ProcessTable.descriptors(pid).keys
    limit(pid, (0..).lazy.reject { |number| taken.include?(number) }.drop(count).first)
  end

  def serving = Server.ready(ru: Rackups::PID, fastrack: true, options: { MaxWorkers: 2, ErrRespawnInterval: 0.1, ControlPath: "none" })

  { "in the master" => [:master, 0, /cannot spawn worker \d: .*Too many open files/],
    "in generation 0" => [:first, 2, /cannot spawn worker \d: generation 0 may not open more files \(RLIMIT_NOFILE\)/],
    "in generation 0, for a pipe" => [:first, 5, /cannot spawn worker \d: .*Too many open files/] }.each do |where, (process, count, line)|
    it "#{where} is no reason to end generation 0: the worker comes once there are some" do
      server = serving
      first = server.molds.first
      pid = process == :master ? server.master : first
      # A descriptor that was open for that moment alone leaves room for a worker.
      eventually(60) do
        leave(pid, count)
        victim = server.await_workers(2).first
        server.signal(:KILL, to: victim)
        eventually { server.log.match?(line) || server.workers.then { |found| found.size == 2 && !found.include?(victim) } }
        server.log.match?(line)
      end
      expect(server.get.status).to eq(200)
      limit(pid, 1024)
      server.await_workers(2)
      expect([server.molds, server.log]).to match([[first], /\A(?!.*generation 0 \(pid \d+\))/m])
    end
  end

  it "in generation 0, since a hook has taken all for a while: no worker stays missing, and generation 0 stays" do
    server = Server.ready(ru: Rackups::PID, fastrack: true, options: { MaxWorkers: 2, ErrRespawnInterval: 0.1, ControlPath: "none" }, config: <<~'RUBY')
      before_fork do
        if File.exist?("take") && $taken.nil?
          $taken = []
          begin
            loop { $taken << File.open(File::NULL) }
          rescue Errno::EMFILE
            # One for this file.
            $taken.pop.close
            File.write("taken", "")
          end
          Thread.new { (sleep 0.01 until File.exist?("give")).then { $taken.each(&:close) } }
        end
      end
    RUBY
    first = server.molds.first
    limit(first, 64)
    server.write("take", "")
    server.signal(:KILL, to: server.workers.first)
    server.await_file("taken")
    server.await_log("cannot spawn worker")
    server.signal(:KILL, to: server.workers.first)
    server.write("give", "")
    expect(server.await_workers(2).size).to eq(2)
    expect([server.molds, server.get.status]).to eq([[first], 200])
  end
end
