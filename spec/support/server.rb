# frozen_string_literal: true

require "English"
require "etc"
require "fileutils"
require "rbconfig"
require "socket"
require "tmpdir"
require_relative "clients"
require_relative "folder"
require_relative "front"
require_relative "gc_mode"
require_relative "preload"

# A server under test, started as a user would start it and seen only from outside: by its port or socket, signals, log and /proc.
class Server
  ROOT = File.expand_path("../..", __dir__)
  LIB = File.join(ROOT, "lib")
  COMMAND = File.join(ROOT, "exe/fastrack")
  LISTENING = /(?:^|^\S+ \d+ INFO |"message":")Fastrack starts Listening on (?:(?<host>.+):(?<port>\d+)|:unix:(?<path>.+)) Pid:(?<pid>\d+)(?:"\})?$/.freeze

  # Seconds that a boot, a response or a stop may take before it is a failure.
  DEADLINE = 40

  # Environment of the machine that would change what a server does.
  CLEAN_ENVIRONMENT = %w[
    WEB_CONCURRENCY PORT SERVER_STARTER_PORT LISTEN_FDS LISTEN_PID LISTEN_FDNAMES NOTIFY_SOCKET WATCHDOG_USEC
    WATCHDOG_PID RACK_ENV RAILS_ENV RACK_HANDLER RACKUP_HANDLER RUBYOPT RAILS_SERVE_STATIC_FILES
  ].to_h { |name| [name, nil] }.freeze

  class Failed < StandardError; end

  RACKUP = [RbConfig.ruby, "-w", "-I", LIB, "-S", "rackup"].freeze
  FASTRACK = [RbConfig.ruby, "-w", COMMAND].freeze
  PRELOADS = [Preload.new(RACKUP, %w[-s Fastrack -h]), Preload.new(FASTRACK, %w[-h])].freeze

  @started = []

  class << self
    # Starts a server and returns when it listens.
    #
    # @param ru [String] the text of config.ru
    # @param options [Hash] handler options by name; given as -O Key=Value, a true as bare -O Key
    # @param env [Hash] environment variables; nil removes one
    # @param config [String, nil] the text of a ConfigFile
    # @param rackup [Boolean] through the rackup command, or by a call of the handler's `run`
    # @param fastrack [Boolean] through the fastrack command
    # @param command [Array<String>, nil] words to start it by that have everything in them
    # @param files [Hash{String => String}] further files in the private directory
    # @param unix [Boolean] on a unix socket in the private directory instead of port 0
    # @param keywords passed on to #initialize
    # @raise [Failed] when it exits or does not listen in time
    def start(**keywords) = launch(**keywords).tap(&:await_listening)

    # Starts a server and returns when all of its workers serve.
    def ready(**keywords) = start(**keywords).tap(&:await_ready)

    # Starts a server without waiting for anything.
    def launch(**keywords)
      scope = RSpec.current_example ? :example : :context
      new(**keywords).tap { |server| @started << [scope, server] }
    end

    # Starts a server that is expected to give up, and returns when it has ended; see #status and #log.
    def fail_to_start(**keywords) = launch(**keywords).tap(&:wait)

    def show_logs
      @started.each do |_, server|
        warn "--- log of server #{server.pid} (#{server.command.map(&:inspect).join(" ")})", server.log[-20_000..] || server.log
      end
    end

    # Ends every server of a scope, and raises when one had to be killed, left
    # a process behind, or made Ruby warn about the project's own code.
    def stop_all(scope)
      ending, @started = @started.partition { |owner, _| owner == scope }
      problems = ending.flat_map { |_, server| server.finish }
      raise Failed, problems.join("\n") unless problems.empty?
    end
  end

  attr_reader :pid, :dir, :command, :status, :host

  # @param wrapper [Array<String>] a command that is put before the server's own (strace, start_server)
  # @param inherit [Hash{Integer => IO}] descriptors that the server inherits, by the number it sees
  # @param arguments [Array<String>] further arguments of rackup
  # @param environment [String] rackup's -E
  def initialize(ru:, options: {}, env: {}, config: nil, rackup: true, fastrack: false, command: nil, files: {},
                 unix: false, wrapper: [], inherit: {}, arguments: [], environment: "none", name: "Fastrack")
    # Another user loads the app where root runs the specs (User).
    @dir = Dir.mktmpdir("fastrack-spec").tap { |dir| File.chmod(0o755, dir) }
    @options = complete(options, unix, config)
    @host = @options.fetch("Host", "127.0.0.1")
    @listening = [0, nil]
    files.merge("config.ru" => ru).each { |name, text| write(name, text) }
    command ||= words(FASTRACK, environment, arguments) if fastrack
    @command = wrapper + (command || (rackup ? rackup_command(name, environment, arguments) : script_command))
    env = CLEAN_ENVIRONMENT.merge(env.transform_keys(&:to_s))
    @pid = PRELOADS.lazy.filter_map { |one| one.start(@command, env, @dir, log_path) }.first if inherit.empty?
    @pid ||= spawn(GcMode.in_environment(env), *@command,
                   chdir: @dir, in: File::NULL, out: log_path, err: %i[child out], pgroup: true, close_others: true, **inherit)
  end

  # Writes a file into the private directory and gives its path.
  def write(name, text) = Folder.write(@dir, name, text)

  # The path of a file in the private directory.
  def file(name) = File.join(@dir, name)
  def file?(name) = File.exist?(file(name))
  def remove(name) = File.unlink(file(name))
  def await_file(name) = Eventually.eventually(DEADLINE, -> { "no #{name}; log:\n#{log}" }) { file?(name) }

  # Lines of a file in the private directory, where the app or its hooks write what they do; none while it is not there.
  def lines_of(file)
    File.readlines(File.join(@dir, file), chomp: true)
  rescue Errno::ENOENT
    []
  end

  def log_path = File.join(@dir, "server.log")

  # Before a line of the server's own, unless LogFormat says something else: time, pid and level.
  TIMED = /^\d{4}-\d\d-\d\dT[\d:.]+Z \d+ (?:INFO|WARN|ERROR) (?=fastrack: )/.freeze

  # Everything written to stdout and stderr so far, without times, and without what is said of this machine's limits.
  def log = whole_log.gsub(TIMED, "").lines.grep_v(/\Afastrack: only \d+ open files are allowed/).join
  def whole_log = File.exist?(log_path) ? File.read(log_path, encoding: "UTF-8").scrub : ""

  def await_listening
    Eventually.eventually(DEADLINE, -> { "no listening line in:\n#{log}" }) do
      raise Failed, "the server ended with #{status.inspect}:\n#{log}" if ended?

      listening
    end
    self
  end

  # Waits until the log has a text, or what a pattern matches, so many times.
  def await_log(text, times = 1)
    Eventually.eventually(DEADLINE, -> { "no #{times} of #{text.inspect} in:\n#{log}" }) { log.scan(text).size >= times }
    self
  end

  # Waits until all workers serve, those of its start or of the last of so many generations.
  def await_ready(times = 1) = await_log("Fastrack is ready", times)

  # The last `starts Listening` line, taken apart. Logs may be long, and threads of clients ask for it often: only what is new is read.
  def listening
    looked_at, found = @listening
    size = File.size?(log_path).to_i
    looked_at, found = 0, nil if size < looked_at
    return found if size == looked_at

    lines = File.read(log_path, size - looked_at, looked_at).to_s[/.*\n/m].to_s
    lines.dup.force_encoding(Encoding::UTF_8).scrub.scan(LISTENING) { found = $LAST_MATCH_INFO }
    @listening = [looked_at + lines.bytesize, found]
    found
  end

  def port
    port = listening[:port]&.to_i
    return port unless Front::H2 && @options["Listen"] == Translator.place

    (@translator ||= Translator.new(port, file("nghttpx.log"))).port
  end

  # The unix socket's path, nil on a port.
  def path = listening[:path]&.then { |found| File.expand_path(found, dir) }

  # The pid of the master: not #pid when a wrapper stands before it.
  def master = listening[:pid].to_i
  def url(path = "/") = "http://#{host.include?(":") ? "[#{host}]" : host}:#{port}#{path}"

  # Pids of the live workers, and of the processes that fork them.
  def workers = ProcessTable.workers(master)
  def molds = ProcessTable.molds(master)

  # Waits until that many workers run, and are the right ones to the block, and gives their pids. The block gets those of one moment: two
  # looks at #workers may see a worker come in between.
  def await_workers(count)
    Eventually.eventually(DEADLINE, -> { "#{workers.size} workers instead of #{count}, or not the right ones: #{workers}\n#{log}" }) do
      found = workers
      found if found.size == count && (!block_given? || yield(found))
    end
  end

  # Waits until others have taken these workers' places, which HUP has all do, and gives them.
  def await_others(before) = await_workers(before.size) { |found| (found & before).empty? }
  def renew(before = workers) = signal(:HUP) && await_others(before)

  # Whether nobody listens any more where the server did.
  def refused?
    connect(&:itself).nil?
  rescue Errno::ECONNREFUSED
    true
  end

  # A new connection to the server; closed after the block, when one is given, else after the example.
  def connect(&block) = Clients.connected(path ? UNIXSocket.new(path) : TCPSocket.new(host, port), &block)

  # Sends bytes, and ends the sending side if that is wanted; gives everything that comes back until the server closes.
  def raw(bytes, half_close: false, timeout: DEADLINE)
    connect do |socket|
      begin
        socket.write(bytes)
        socket.close_write if half_close
      rescue Errno::EPIPE, Errno::ECONNRESET
        # The server may answer and close before it has read everything.
      end
      read_to_end(socket, timeout)
    end
  end

  def get(path = "/", headers = {}, **keywords) = request("GET", path, headers, **keywords)
  def post(path, body, headers = {}, **keywords)
    request("POST", path, { "Content-Length" => body.bytesize }.merge(headers), body, **keywords)
  end

  # One request on a connection of its own, and its HttpResponse.
  def request(verb, path, headers = {}, body = "", timeout: DEADLINE)
    lines = { "Host" => "localhost", "Connection" => "close" }.merge(headers)
    head = lines.flat_map { |name, value| Array(value).map { |one| "#{name}: #{one}\r\n" } }.join
    bytes = raw("#{verb} #{path} HTTP/1.1\r\n#{head}\r\n#{body}".b, timeout: timeout)
    HttpResponse.parse(bytes, head_only: verb == "HEAD")
  end

  def signal(name, to: pid) = Process.kill(name, to)

  # Sends HUP, with another ConfigFile where one is given.
  def reload(config = nil)
    write("fastrack.rb", config) if config
    signal(:HUP)
  end

  # Sends a signal, waits for the end, and gives the Process::Status; Eventually::TimedOut when it does not end in time.
  def stop(name = :TERM, timeout: DEADLINE)
    signal(name) unless ended?
    wait(timeout)
  end

  # Waits for the end of the server without asking for it, and gives the Process::Status.
  def wait(timeout = DEADLINE)
    Eventually.eventually(timeout, -> { "the server did not end; its processes: #{processes}" }) { ended? }
    status
  end

  def ended?
    return true if @status

    _, @status = Process.wait2(pid, Process::WNOHANG)
    !@status.nil?
  end

  # Pids of everything that was started by this server and still runs.
  def processes = ProcessTable.group(pid)

  # Ends the server for good, removes its directory, and gives an Array of what was wrong.
  def finish
    problems = [end_politely, end_leftovers, own_warnings].compact
    @translator&.stop
    FileUtils.remove_entry(@dir)
    problems
  end

  private

  def complete(options, unix, config)
    given = options.transform_keys(&:to_s)
    place = unix ? { "Path" => File.join(@dir, "server.sock") } : { "Host" => "127.0.0.1", "Port" => 0 }
    given = Front.options(place.merge(given))
    given["ConfigFile"] ||= write("fastrack.rb", config) if config
    given
  end

  def rackup_command(name, environment, arguments) = words([*RACKUP, "-s", name], environment, arguments)

  def words(program, environment, arguments)
    flags = @options.flat_map do |key, value|
      next [] if value.nil?

      ["-O", value == true ? key : "#{key}=#{value}"]
    end
    [*program, "-E", environment, *flags, *arguments, "config.ru"]
  end

  def script_command
    script = write("run.rb", <<~RUBY)
      # frozen_string_literal: true

      require "rack"
      require "rhebok-rs"
      app = Rack::Builder.parse_file(File.expand_path("config.ru", __dir__))
      app = app.first if app.is_a?(Array)
      Fastrack::Handler.run(app, **#{@options.transform_keys(&:to_sym).inspect})
      puts "run returned"
    RUBY
    [RbConfig.ruby, "-w", "-I", LIB, script]
  end

  def read_to_end(socket, timeout)
    timeout = GcMode.patient(timeout)
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + timeout
    bytes = +"".b
    loop do
      left = deadline - Process.clock_gettime(Process::CLOCK_MONOTONIC)
      raise Failed, "no end after #{timeout} s of #{bytes.inspect[0, 500]}" unless left.positive? && socket.wait_readable(left)

      bytes << socket.readpartial(65_536)
    end
  rescue EOFError, Errno::ECONNRESET
    bytes
  end

  def end_politely
    stop(:TERM, timeout: 10)
    end_successor
    nil
  rescue Eventually::TimedOut => e
    Process.kill(:KILL, pid)
    wait
    "server #{pid} had to be killed: #{e.message}"
  end

  # After USR2 another process is the master, which is not a child of this one.
  def end_successor
    last = listening && listening[:pid].to_i
    signal(:TERM, to: last) if last && last != pid && processes.include?(last)
  rescue Errno::ESRCH
    nil
  end

  # A wrapper may end before what it started, and a killed master before its workers.
  def end_leftovers
    Eventually.eventually(10) { ProcessTable.no_group?(pid) || processes.empty? }
    nil
  rescue Eventually::TimedOut
    left = processes
    left.each do |one|
      Process.kill(:KILL, one)
    rescue Errno::ESRCH
      nil
    end
    "server #{pid} left processes behind: #{left.inspect}"
  end

  def own_warnings
    warnings = log.lines.select { |line| line.start_with?(LIB) && line.include?(": warning: ") }
    "Ruby warned:\n#{warnings.join}" unless warnings.empty?
  end
end
