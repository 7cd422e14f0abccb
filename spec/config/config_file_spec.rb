# frozen_string_literal: true

require_relative "../../lib/fastrack/configuration"

RSpec.describe "ConfigFile", once: "a file of words" do
  include Folder

  let(:file) { File.join(@dir, "fastrack.rb") }
  let(:output) { StringIO.new }

  def configure(text, given = {}, environment = {})
    File.write(file, text)
    Fastrack::Configuration.new({ ConfigFile: file }.merge(given), environment: environment, output: output, warnings: StringIO.new)
  end

  it "A4 has a word for each option" do
    values = { host: "127.0.0.1", port: 8000, path: "/run/app.sock", backlog: 64, reuseport: true, max_workers: 2, timeout: 30,
               max_request_per_child: 100, min_request_per_child: 50, oobgc: true, max_gc_per_request: 9, min_gc_per_request: 3,
               chunked_transfer: true, spawn_interval: 1, err_respawn_interval: 2 }
    expect(configure(values.map { |word, value| "#{word} #{value.inspect}\n" }.join)).to have_attributes(values.transform_keys(timeout: :client_timeout))
  end

  { 'max_workers ENV["NOT_THERE"] || "3"' => 3, "max_workers nil" => 5, "workers = [1, 2].sum\nmax_workers workers" => 3 }.each do |text, count|
    it("A4 #{text.inspect} is #{count} workers") { expect(configure(text).max_workers).to eq(count) }
  end

  it "A2 goes before the command line, which goes before the environment" do
    found = configure("max_workers 2", { MaxWorkers: "3", Port: "8001" }, "WEB_CONCURRENCY" => "4", "PORT" => "8002")
    expect(found).to have_attributes(max_workers: 2, port: 8001)
  end

  it "A6 a variable in whose place it has a word need not be understood" do
    found = configure("max_workers 2\npath 'app.sock'", {}, "WEB_CONCURRENCY" => "auto", "PORT" => "tcp://1")
    expect(found).to have_attributes(max_workers: 2, path: "app.sock")
  end

  # What is wrong, the file's text, and what the line says after the file's name.
  { "raises" => ["host 'a'\nraise 'no luck'", ":2: no luck (RuntimeError)"],
    "raises deep down" => ["\n\ndef helper\n  Integer('x')\nend\nhelper", ":4: invalid value for Integer(): \"x\" (ArgumentError)"],
    "has a syntax error" => ["host 'a'\nport(\n", /:\d+: syntax error.* \(SyntaxError\)/],
    "requires what is not there" => ["require 'no/such'", ":1: cannot load such file -- no/such (LoadError)"],
    "has an unknown word" => ["\nmax_worker 3", ":2: unknown word max_worker; did you mean max_workers?"],
    "has an ill-typed value" => ["max_workers 'many'", ":1: max_workers must be a whole number, 1 or more; got \"many\""],
    "has a hook without a block" => ["before_fork", ":1: before_fork must be a block or anything that can be called; no value was given"],
    # Unicorn's words.
    "an address that is none" => ["\nlisten 'app'", ":2: listen must be a port, host:port, [IPv6]:port or a path; got \"app\""],
    "a setting of a listener that there is not" =>
      ["listen 8080, backlock: 1", /:1: listen has no setting backlock; did you mean backlog\?; got "8080.*"/],
    "a listener beside a path" => ["listen 8080\npath '/a.sock'", ":2: path has no effect beside listen; write it as another listen"],
    "a user that there is not" =>
      ["user 'nobody-here'", ":1: user must be an existing user; got \"nobody-here\""],
    "a group that there is not" =>
      ["user 'root', 'no-such'", ":1: user must be an existing group; got [\"root\", \"no-such\"]"],
    "a user without a name" => ["user", ":1: user must be a user, or user:group; no value was given"],
    "a mask that is none" => ["umask '99'", ":1: umask must be a file mode, from 0000 to 0777; got \"99\""],
    "a slip in a word" => ["worker_process 3", ":1: unknown word worker_process; did you mean worker_processes?"]
  }.each do |what, (text, message)|
    it "A4 C2 #{what}: an error of one line with its place" do
      expected = message.is_a?(Regexp) ? /\AConfigFile #{Regexp.escape(file)}#{message}\z/ : "ConfigFile #{file}#{message}"
      expect { configure(text) }.to raise_error(Fastrack::ConfigurationError, expected)
    end
  end

  describe "in a server" do
    it "A5 is announced first, and its address is the one that is listened on" do
      server = Server.start(ru: Rackups::PID, options: { Host: nil, Port: 1 }, config: "host '127.0.0.1'\nport 0\nmax_workers 1")
      listening = /\AFastrack starts Listening on 127\.0\.0\.1:\d+ Pid:\d+\n\z/
      expect(server.log.lines.first(2)).to match(["loading from config_file:#{server.dir}/fastrack.rb\n", listening])
      expect(server.get.status).to eq(200)
    end

    # What the hooks of all workers have noted: an Array of lines, each an Array of words.
    def notes(server, count)
      eventually(20, "#{count} notes") { server.lines_of("notes").size == count }
      server.lines_of("notes").map(&:split)
    end

    it "A4 before_fork runs in generation 0 before each fork, after_fork in each worker" do
      server = Server.start(ru: Rackups::PID, fastrack: true, options: { MaxWorkers: 2 }, config: <<~'RUBY')
        before_fork { $seen = [$$, ($forks = $forks.to_i + 1)] }
        after_fork { File.write("notes", "#{[*$seen, $$].join(" ")}\n", mode: "a") }
      RUBY
      found = notes(server, 2).map { |words| words.map(&:to_i) }
      workers = server.await_workers(2)
      expect(found.map { |mold, forks, _| [mold, forks] }).to contain_exactly([server.molds.first, 1], [server.molds.first, 2])
      expect(found.map(&:last)).to match_array(workers)
    end

    it "A4 before_fork runs once for each worker where rackup has loaded the app into the master: there for the first" do
      server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 2 }, config: "before_fork { File.write('notes', \"\#{$$}\\n\", mode: 'a') }")
      server.await_workers(2)
      server.await_ready
      expect(notes(server, 2).flatten.map(&:to_i)).to eq([server.master, *server.molds])
    end

    it "A4 hooks get server and worker when they take them, and nothing when they do not" do
      server = Server.start(ru: "run ->(_env) { [200, {}, [$seen.inspect]] }", options: { MaxWorkers: 1 }, config: <<~RUBY)
        before_fork ->() { $seen = [] }
        after_fork { |server, worker| $seen << worker.nr << server.class }
      RUBY
      expect(server.get.body).to eq("[0, Fastrack::Launcher]")
    end

    it "A4 each worker has random numbers of its own, from before after_fork on" do
      server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 3 }, config: <<~'RUBY')
        srand(42)
        after_fork { File.write("notes", "#{rand(1 << 64)}\n", mode: "a") }
      RUBY
      found = notes(server, 3)
      expect(found.uniq.size).to eq(3)
      expect(found).not_to include([Random.new(42).rand(1 << 64).to_s])
    end

    # Its ConfigFile waits for a pipe since HUP.
    def start_waiting(limit)
      server = Server.ready(ru: Rackups::PID, options: { MaxWorkers: 1, ErrRespawnInterval: 0 }, config: <<~RUBY)
        worker_boot_timeout #{limit}
        reader, WRITER = IO.pipe if File.exist?("wait")
        (File.write("waits", ""); reader.read) if reader
      RUBY
      server.write("wait", "")
      server.signal(:HUP)
      server.await_file("waits")
      server
    end

    it "that waits for a pipe when HUP reads it again keeps no worker from being replaced, and is given up after WorkerBootTimeout" do
      # New workers have as long.
      server = start_waiting(GcMode.patient(2))
      server.signal(:KILL, to: server.workers.first)
      expect(server.get.status).to eq(200)
      server.await_log(/^fastrack: HUP: the new code is given up: generation 0 \(pid \d+\) .*WorkerBootTimeout.*; the old code serves on$/)
      server.remove("wait")
      server.renew(server.await_workers(1))
    end

    %w[TERM QUIT INT].each do |name|
      it "that waits for a pipe when HUP reads it again does not keep #{name} from ending the server" do
        server = start_waiting(0)
        server.signal(name)
        expect(server.wait.exitstatus).to eq(0)
      end
    end
  end
end
