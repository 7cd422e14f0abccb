# frozen_string_literal: true

require_relative "../../lib/fastrack/configuration"
require_relative "../../lib/fastrack/master/process_setup"

# What docs/platforms.md says of systems other than Linux, as far as Linux can show it.
RSpec.describe "Platforms", once: "what other systems lack" do
  include ReexecHelpers

  # Has the server see an empty /proc, as if there were none. Others still see theirs.
  without_proc = ["unshare", "-m", "--propagation", "private", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"].freeze

  describe "without /proc", if: Process.uid.zero? && system(*without_proc, "true", %i[out err] => File::NULL) do
    let(:ru) { "run ->(_env) { $stdout.puts 'served'; [200, {}, [[Process.pid, Dir.children('/proc')].inspect]] }" }

    it "serves, replaces its workers at HUP and one that was killed, reopens its log at USR1, and ends at TERM" do
      server = Server.launch(ru: ru, wrapper: without_proc, fastrack: true, unix: true, options: { MaxWorkers: 2 }, config: "stdout_path 'out.log'")
      path = "#{server.dir}/server.sock"
      get = lambda do
        UNIXSocket.open(path) { |socket| socket.write("GET / HTTP/1.0\r\n\r\n") && socket.read[/\[(\d+), \[\]\]/, 1].to_i }
      rescue Errno::ECONNREFUSED
        # Between bind(2) and listen(2).
        0
      end
      two = ->(gone) { eventually(20, -> { server.whole_log }) { ProcessTable.workers(server.pid).then { |found| found if found.size == 2 && (found & gone).empty? } } }
      eventually(20, -> { server.whole_log }) { File.socket?(path) && get.call.positive? }
      before = two.call([])
      server.signal(:HUP)
      fresh = two.call(before)
      Process.kill(:KILL, fresh.first)
      two.call([fresh.first])
      File.rename("#{server.dir}/out.log", "#{server.dir}/out.old")
      server.signal(:USR1)
      eventually(20, -> { server.whole_log }) { get.call.positive? && server.lines_of("out.log").include?("served") }
      expect(server.stop.exitstatus).to eq(0)
      expect(server.log).not_to match(/error|exception/i)
    end

    it "starts a new master at USR2, with the options that the first was given" do
      server = start(ru: ru, wrapper: without_proc, fastrack: true, options: { MaxWorkers: 2, KeepAliveTimeout: 7 })
      usr2(server)
      master = taken_over(server)
      expect(server.await_workers(2)).to include(server.get.body[/\[(\d+), \[\]\]/, 1].to_i)
      expect(ProcessTable.title(master)).to start_with("fastrack master")
    end

    it "answers a request that is too long with a 504, and the log has its backtrace" do
      server = Server.start(ru: "def nap = sleep\nrun ->(_env) { nap }", wrapper: without_proc, fastrack: true,
                            options: { MaxWorkers: 1, RequestTimeout: 1 }, config: <<~RUBY)
                              # A worker that the machine has stopped is not to be killed for that.
                              Fastrack::WorkerTimeout.send(:remove_const, :GRACE)
                              Fastrack::WorkerTimeout::GRACE = 60
                            RUBY
      expect(server.get.status).to eq(504)
      eventually(20, -> { server.log }) { server.log.match?(/config\.ru:1:in .*nap/) }
      expect(server.await_workers(1)).not_to be_empty
    end
  end

  # setrlimit(2) of macOS.
  it "takes as many descriptors as macOS gives where the hard limit is none" do
    taken = nil
    allow(Process).to receive(:getrlimit).and_return([256, Process::RLIM_INFINITY])
    allow(Process).to receive(:setrlimit) do |_, soft, hard|
      raise Errno::EINVAL if soft > 10_240

      taken = [soft, hard]
    end
    Fastrack::ProcessSetup.new(Fastrack::Configuration.new({}, environment: {}, output: StringIO.new)).apply
    expect(taken).to eq([10_240, Process::RLIM_INFINITY])
  end

  { "is compiled" => %w[linux linux-gnu linux-musl darwin23], "is refused in one line" => %w[mingw32 cygwin freebsd14] }.each do |what, systems|
    it "has an extension that #{what} on #{systems.join(", ")}" do
      supported = what == "is compiled"
      systems.each do |system|
        output, status = Open3.capture2e(RbConfig.ruby, "-r#{Server::ROOT}/ext/fastrack/build/toolchain", "-e", "Toolchain.target!(#{system.inspect})")
        refusal = "fastrack: #{system} is not supported: Fastrack runs on Linux and macOS, on Windows in WSL 2\n"
        expect([output, status.success?]).to eq([supported ? "" : refusal, supported])
      end
    end
  end
end
