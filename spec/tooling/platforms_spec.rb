# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/reexec_helpers"
require_relative "../../ext/fastrack/build/toolchain"
require_relative "../../lib/fastrack/configuration"
require_relative "../../lib/fastrack/process/settings"
require "io/nonblock"
require "open3"

# What docs/platforms.md says of systems other than Linux, as far as Linux can show it.
RSpec.describe "Platforms" do
  include ReexecHelpers

  # Has the server see an empty /proc, as if there were none. Others still see theirs.
  without_proc = ["unshare", "-m", "--propagation", "private", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"].freeze

  describe "without /proc", if: Process.uid.zero? && system(*without_proc, "true", %i[out err] => File::NULL) do
    let(:ru) { "run ->(_env) { $stdout.puts 'served'; [200, {}, [[Process.pid, Dir.children('/proc')].inspect]] }" }

    def serve(wrapper, **keywords)
      start(ru: ru, wrapper: wrapper, fastrack: true, **keywords)
    end

    it "serves, replaces its workers at HUP, reopens its log at USR1, and ends at TERM" do
      server = Server.launch(ru: ru, wrapper: without_proc, fastrack: true, unix: true, options: { MaxWorkers: 2 }, config: "stdout_path 'out.log'")
      path = "#{server.dir}/server.sock"
      get = -> { UNIXSocket.open(path) { |socket| socket.write("GET / HTTP/1.0\r\n\r\n") && socket.read[/\[(\d+), \[\]\]/, 1].to_i } }
      workers = -> { ProcessTable.children(server.pid) }
      eventually(20, -> { server.whole_log }) { File.socket?(path) && get.call.positive? }
      before = eventually(20) { workers.call.then { |found| found if found.size == 2 } }
      server.signal(:HUP)
      eventually(20, -> { server.whole_log }) { workers.call.then { |found| found.size == 2 && (found & before).empty? } }
      File.rename("#{server.dir}/out.log", "#{server.dir}/out.old")
      server.signal(:USR1)
      eventually(20, -> { server.whole_log }) { get.call.positive? && server.lines_of("out.log").include?("served") }
      expect(server.stop.exitstatus).to eq(0)
      expect(server.log).not_to match(/error|exception/i)
    end

    it "starts a new master at USR2, with the options that the first was given" do
      server = serve(without_proc, options: { MaxWorkers: 2, KeepAliveTimeout: 7 })
      usr2(server)
      master = taken_over(server)
      expect(server.await_workers(2)).to include(server.get.body[/\[(\d+), \[\]\]/, 1].to_i)
      expect(ProcessTable.title(master)).to start_with("fastrack master")
    end

    it "answers a request that is too long with a 504, and the log has its backtrace" do
      server = Server.start(ru: "def nap = sleep\nrun ->(_env) { nap }", wrapper: without_proc, fastrack: true,
                            options: { MaxWorkers: 1, RequestTimeout: 1 })
      expect(server.get.status).to eq(504)
      eventually(20, -> { server.log }) { server.log.match?(/config\.ru:1:in .*nap/) }
      expect(server.await_workers(1)).not_to be_empty
    end

    it "goes on though nobody reads its log (D7)" do
      reader, writer = IO.pipe
      [512, 1].each { |size| nil until writer.write_nonblock("." * size, exception: false) == :wait_writable }
      writer.nonblock = false
      server = serve(without_proc, options: { MaxWorkers: 1, ErrRespawnInterval: 0.1 }, inherit: { 9 => writer }, config: <<~RUBY)
        $stderr.reopen(IO.for_fd(9, "w", autoclose: false)) if File.exist?("full")
      RUBY
      before = server.await_workers(1)
      server.write("full", "")
      server.signal(:HUP)
      fresh = server.await_workers(1) { |found| found != before }
      server.signal(:KILL, to: fresh.first)
      server.await_workers(1) { |found| found != fresh }
      expect(server.get.status).to eq(200)
      expect(server.stop.exitstatus).to eq(0)
    ensure
      [reader, writer].each(&:close)
    end

    it "replaces a worker that was killed" do
      server = serve(without_proc, options: { MaxWorkers: 2 })
      killed = server.await_workers(2).first
      Process.kill(:KILL, killed)
      server.await_workers(2) { |found| !found.include?(killed) }
      expect(server.get.status).to eq(200)
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
    Fastrack::ProcessSettings.new(Fastrack::Configuration.new({}, environment: {}, output: StringIO.new)).apply
    expect(taken).to eq([10_240, Process::RLIM_INFINITY])
  end

  describe "the extension" do
    def target(system)
      Open3.capture2e(RbConfig.ruby, "-r#{Server::ROOT}/ext/fastrack/build/toolchain", "-e", "Toolchain.target!(#{system.inspect})")
    end

    %w[linux linux-gnu linux-musl darwin23 darwin].each do |system|
      it "is compiled on #{system}" do
        output, status = target(system)
        expect([output, status.exitstatus]).to eq(["", 0])
      end
    end

    %w[mingw32 mswin64 cygwin freebsd14 solaris2.11].each do |system|
      it "is refused on #{system} in one line" do
        output, status = target(system)
        expect([output, status.exitstatus])
          .to eq(["fastrack: #{system} is not supported: Fastrack runs on Linux and macOS, on Windows in WSL 2\n", 1])
      end
    end

    it "is refused before anything is looked for or written" do
      Dir.mktmpdir do |dir|
        File.write("#{dir}/other.rb", %(require "rbconfig"\nRbConfig::CONFIG["target_os"] = "mingw32"\n))
        output, status = Open3.capture2e({ "PATH" => "/nowhere" }, RbConfig.ruby, "-r#{dir}/other", "#{Server::ROOT}/ext/fastrack/extconf.rb", chdir: dir)
        expect([output.lines.size, status.exitstatus, Dir.children(dir)]).to eq([1, 1, ["other.rb"]])
        expect(output).to start_with("fastrack: mingw32 is not supported")
      end
    end
  end
end
