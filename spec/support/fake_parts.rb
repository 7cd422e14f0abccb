# frozen_string_literal: true

# The shared memory of a FakeSystem: what the master asks of a Scoreboard.
class FakeBoard
  def initialize
    @peers = {}
    @answered = 0
  end

  attr_reader :peers

  def fd = 3
  def reserve = (0..).find { |slot| !@peers.key?(slot) }.tap { |slot| @peers[slot] = nil }
  def assign(slot, _nr, pid, _generation) = @peers[slot] = FakeSystem.current.peer_of(pid)

  def release(slot)
    @answered += @peers[slot]&.requests.to_i
    @peers.delete(slot)
  end

  def read(slot) = { state: :waiting, requests: @peers[slot]&.requests.to_i, memory: nil, started: 0.0, deadline: nil, callbacks: false, line: nil, id: nil }
  def counts(_slot) = { hijacked: 0 }
  def totals = { requests: @answered + @peers.values.compact.sum(&:requests) }
  def count_restart(_cause) = nil
end

# A HeldChild of a FakeSystem.
class FakeChild
  attr_reader :pid, :status

  def initialize(system, pid)
    @system, @pid = system, pid
  end

  def child? = true
  def signal(name) = (@system.kill_of(nil, name, pid) unless @ended)
  def detach = nil

  def ended?
    _, @status = @system.wait2_of(nil, pid, 0) unless @ended
    @ended ||= !@status.nil?
  rescue Errno::ECHILD
    @ended = true
  end
end

# MasterHooks without a thread that watches the time.
class FakeHooks
  def initialize(system, signals)
    @system, @signals = system, signals
  end

  attr_writer :meanwhile

  def limit = self
  def ending = nil
  def within(seconds, grace: 0, &block) = @system.limited(seconds, grace, @signals, &block)
  def fork_limit = ->(&fork) { fork.call }
  def call_hook(*) = nil
end

# What the master asks of its Launcher.
class FakeLauncher
  QUIET = Object.new.tap { |output| def output.puts(*) = nil }

  attr_reader :configuration, :version
  attr_writer :master

  def initialize(system)
    @system = system
    options = { MaxWorkers: 1 + system.random.rand(4), ErrRespawnInterval: 0.5, ControlPath: "none", MaxMemory: "0", Refork: system.random.rand(3).zero? }
    @configuration = Fastrack::Configuration.new(options, environment: { "RACK_ENV" => "production" }, output: QUIET, warnings: QUIET)
    @version = 0
  end

  def hooks = @master.hooks
  def first_reading = nil
  def subreaper? = @system.subreaper?
  def loaded? = false
  def interactive? = false
  def supervised? = false
  def background? = true
  def listeners = []
  def open_listeners = []
  def former_listeners = []
  def proxy = nil
  def queue = nil
  def waiting = nil
  def pid_file = nil
  def ready = nil

  # The version is the number of the HUP.
  def reload(version)
    raise Fastrack::Error, "the ConfigFile is wrong" if @system.fault?(5)

    @before ||= [@configuration, @version]
    @configuration = @configuration.dup
    @version = version
  end

  def settle
    @before = nil
    []
  end

  def undo
    @configuration, @version = @before if @before
    @before = nil
  end
end
