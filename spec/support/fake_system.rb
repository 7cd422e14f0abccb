# frozen_string_literal: true

require "fastrack"
require "fastrack/native"
require "fastrack/launcher"
%w[fake_babble fake_parts fake_peer fake_watch].each { |name| require_relative name }

# A system of one thread and a clock of its own, in which the real Master, with all that it holds of its processes, runs against FakePeers. The
# channels are real; what the master asks of the kernel is answered here. A seed decides on the order of all that happens, late messages included,
# and on the faults. The same seed has the same run.
#
# At first there are faults, as many as `steps`. Then nothing more goes wrong, and the master has to have its workers again.
class FakeSystem
  # A promise that was not held. The message has the last of what has happened.
  class Broken < StandardError; end

  # Above the highest pid of Linux (proc(5), pid_max), so that nobody is hit by accident.
  FIRST_PID = 5_000_000

  # Seconds and looks after the last fault in which all workers have to be there.
  PATIENCE = 1200
  LOOKS = 30_000

  OPERATOR = { "HUP" => 5, "URG" => 6, "TTIN" => 1, "TTOU" => 1, "WINCH" => 1, "USR1" => 1 }.freeze

  class << self
    # @return [FakeSystem, nil] the running one
    attr_accessor :current

    # Has a method ask the running system.
    def answers(owner, name)
      owner.prepend(Module.new do
        define_method(name) do |*arguments, **keywords, &block|
          system = FakeSystem.current
          system ? system.public_send(:"#{name.to_s.delete("?=")}_of", self, *arguments, **keywords, &block) : super(*arguments, **keywords, &block)
        end
      end)
    end
  end

  attr_reader :now, :random, :peers, :board, :launcher, :master

  # @param steps [Integer] faults and orders
  # @param babble [Integer] further lines that processes write while there are faults, whatever they have to say
  def initialize(seed, steps, babble = 0)
    @random = Random.new(seed)
    @steps = steps
    @babble = FakeBabble.new(@random, babble)
    @now = 1000.0
    @peers = []
    @events = []
    @pairs = {}
    @quiet = true
    @subreaper = @random.rand(4).positive?
    # New code that does not load, or whose workers do not boot.
    @codes = @random.rand(3).zero? ? %i[good good bad_load bad_boot] : %i[good]
    @code = :good
    @halts = @random.rand(4).zero?
    @looks = 0
  end

  def subreaper? = @subreaper
  def quiet? = @quiet

  # @return [Boolean] whether what happens once in so many times happens now
  def fault?(percent) = !@quiet && @random.rand(100) < percent

  def note(text) = @events << format("%9.2f %s", @now - 1000, text)

  # Raised again, because the master takes it for an exception of a hook's.
  def broken(text)
    @broken ||= Broken.new("#{text}\n#{@events.last(80).join("\n")}\n#{@peers.select { |peer| peer.alive || !peer.reaped }.join("\n")}")
    raise @broken
  end

  # The life of a server, until it has ended and nobody is left.
  def run
    FakeSystem.current = self
    @launcher = FakeLauncher.new(self)
    @master = Fastrack::Master.new(@launcher, nil)
    @launcher.master = @master
    @signals, @workers, @refork, @generations, @orders = %i[@signals @workers @refork @generations @orders].map { |name| @master.instance_variable_get(name) }
    @most = @workers.size
    serve
    raise @broken if @broken

    bury
  ensure
    FakeSystem.current = nil
    @peers.each(&:close)
  end

  private def serve
    @master.run do
      @master.start_plugins
      @steps.zero? ? calm_down : @quiet = false
    end
  rescue Fastrack::Error
    # A server whose workers fail to boot again and again ends, unless one has ever been ready.
    raise if @workers.instance_variable_get(:@proven)
  end

  # Whoever is left has read the end of its channel.
  def bury
    100.times { @peers.each { |peer| peer.act(peer.readable?) if peer.enabled?(peer.readable?) } }
    left = @peers.select(&:alive)
    broken("the server has ended, and left #{left.join(", ")}") if left.any?
  end

  # The master sleeps: time goes by, and the others live.
  #
  # @return [Array] those of the readers that are ready, or some of them
  def select_of(_owner, readers, seconds)
    raise @broken if @broken

    @readers = readers
    @now += 0.0001
    until_at = seconds && @now + seconds
    loops = readers.first.equal?(@signals.reader)
    look(until_at) if loops
    @idle = loops && seconds&.zero? && readable(readers).empty? ? @idle.to_i + 1 : 0
    broken("the master does not sleep") if @idle > 500
    loop do
      interrupt
      ready = readable(readers)
      return ready if ready.any? || (loops && awake?) || (until_at && @now >= until_at)

      go_on(until_at)
    end
  end

  # Whether a signal wakes the master.
  private def awake?
    ended, @child_ended = @child_ended, false
    ended || @signals.size.positive?
  end

  private def readable(readers)
    ready = IO.select(readers, nil, nil, 0)&.first || []
    # The others are late.
    return ready if @quiet || ready.empty?
    return [] if @random.rand(3).zero?

    ready.sample(1 + @random.rand(ready.size), random: @random)
  end

  private def go_on(until_at)
    @looks += 1
    broken("nothing comes to rest") if @looks > LOOKS * 4
    return disturb if !@quiet && @random.rand(12).zero?

    @babble.say(@peers.select(&:alive)) unless @quiet

    peer = enabled.sample(random: @random)
    return pass(until_at, peer) if peer.nil? || (!@quiet && @random.rand(4).zero?)

    peer.act(peer.readable?)
    @now += 0.001
  end

  private def enabled = @peers.select { |peer| peer.alive && peer.enabled?(peer.readable?) }

  # Time goes by, and workers answer requests.
  private def pass(until_at, peer)
    server = @peers.select { |one| one.alive && !one.hung && one.state == :serving }.sample(random: @random)
    server&.serve(@random.rand(8))
    wakes = [until_at, @limit && @limit[:at]].compact.min
    broken("the master waits, and nobody will wake it") if wakes.nil? && peer.nil? && server.nil? && !empty? && IO.select(@readers, nil, nil, 0).nil?
    most = wakes ? wakes - @now : 1.0
    @now += @quiet && wakes ? most : [most, @random.rand * 2.0].min
  end

  # Whether the master has nothing to wait for but its operator: all workers were ended by TTOU or WINCH.
  private def empty? = @workers.size.zero? && !@generations.renewing?

  # What goes wrong, and what operators do.
  private def disturb
    @steps -= 1
    if @steps.negative? then @babble.left? ? @steps += 1 : calm_down
    elsif @random.rand(2).zero? then operate
    else
      peer = @peers.select(&:alive).sample(random: @random) or return
      note("#{peer} is killed from outside")
      peer.die(9)
    end
  end

  private def operate
    name = OPERATOR.flat_map { |one, weight| [one] * weight }.sample(random: @random)
    @code = @codes.sample(random: @random) if name == "HUP"
    note("operator: #{name}#{" with code #{@code}" if name == "HUP"}")
    @most += 1 if name == "TTIN"
    @signals.push(name)
  end

  # The end of all faults.
  private def calm_down
    @quiet = true
    @code = :good
    @looks = 0
    note("from now on nothing goes wrong")
    @calm_at = @now
    return stop if @halts

    # An operator mends what new code has broken.
    return if @codes.size == 1 && @random.rand(2).zero?

    note("operator: HUP")
    @signals.push("HUP")
    @awaited = true
  end

  private def stop
    name = %w[TERM QUIT INT].sample(random: @random)
    note("operator: #{name}")
    @stopped = true
    @signals.push(name)
  end

  # Called whenever the master is about to sleep, in its own loop.
  private def look(until_at)
    FakeWatch.new(self, @master).check(until_at)
    note_outcomes
    # The operator's last signal may have come while the master waited for a process.
    return if !@quiet || @calm_at.nil? || @stopped || @signals.size.positive?

    problem = FakeWatch.new(self, @master).unrest
    return check_outcome.then { stop } if problem.nil?

    broken("not at rest within #{PATIENCE} s: #{problem}") if @now > @calm_at + PATIENCE || @looks > LOOKS
  end

  # What is told of HUP holds.
  private def note_outcomes
    done = @orders.to_a.select { |_, signal, state| signal == "HUP" && state == "done" }.map(&:first).max
    return if done.nil? || done == @done

    @done = done
    older = @workers.staying.select { |handle| handle.serving? && peer_of(handle.pid).version < done }
    broken("HUP #{done} is done, and there are #{older.map(&:name).join(", ")} of older code") if older.any?
  end

  private def check_outcome
    number, _, state, reason = @orders.to_a.reverse.find { |order| order[1] == "HUP" }
    return if number.nil?

    broken("the last HUP has failed: #{reason}") if @awaited && state != "done"
    # A generation 0 that takes the place of an ended one reads the newest ConfigFile, with its code.
    remade = @workers.source && peer_of(@workers.source.pid)&.version == number
    broken("HUP #{number} is #{state}, and the configuration is that of #{@launcher.version}") if (state == "done" || remade) != (@launcher.version == number)
  end

  # @return [FakePeer, nil] the last one with that pid
  def peer_of(pid) = @peers.reverse_each.find { |peer| peer.pid == pid }

  # @return [Integer] the lowest pid that nobody has, so that mistakes of pids show
  def free_pid
    taken = @peers.reject(&:reaped).map(&:pid) + @workers.each.map(&:pid)
    FIRST_PID + (0..).find { |number| !taken.include?(FIRST_PID + number) }
  end

  def most_workers = @most

  # @param socket [IO] the peer's end of a channel
  # @return [FakePeer]
  def start(socket, **how)
    ours = @pairs.fetch(socket.to_io.stat.ino)
    channel = socket.is_a?(Fastrack::ControlChannel) ? socket : Fastrack::ControlChannel.new(socket)
    FakePeer.new(self, free_pid, channel, ours, **how).tap do |peer|
      @peers << peer
      note("#{peer} is forked")
    end
  end

  def child_ended
    @child_ended = true
  end

  # What the master asks of the system.

  def pair_of(owner)
    raise Errno::EMFILE, "socketpair(2)" if fault?(2)

    pair = UNIXSocket.pair(:STREAM).map { |socket| owner.new(socket) }
    @pairs[pair.last.to_io.stat.ino] = pair.first
    pair
  end

  def fork_of(_owner, pair, kept, *)
    ours, theirs = pair
    version = next_version
    if fault?(3)
      pair.each(&:close)
      raise Errno::EAGAIN, "fork(2)"
    end
    handing = kept.grep(Fastrack::Handing).first&.then { |one| Fastrack::Handing.new(one.to_io.dup) }
    [start(theirs, first: true, handing: handing, code: @code, version: version).pid, ours]
  end

  # @return [Integer] that of the HUP for which a process is forked, or of the running code
  private def next_version
    number, = @orders.to_a.reverse.find { |_, signal, state| signal == "HUP" && state == "begun" }
    return @launcher.version if number.nil? || number == @forked_for

    @forked_for = number
  end

  # What the master sends to a process that has read the ConfigFile.
  def answer_of(*) = [{}, []]

  # @return [Integer] how often a message of the master's comes
  def deliveries(channel, message)
    return 1 unless @pairs.value?(channel)
    return 1 + (fault?(1) ? 1 : 0) unless fault?(1)

    note("#{message.inspect} of the master's is lost")
    0
  end

  def kill_of(_owner, name, pid)
    peer = @peers.find { |one| one.pid == pid && !one.reaped }
    return peer.signal(name) if peer

    broken("SIG#{name} for pid #{pid}, which is free") unless name.to_s == "0" || !subreaper? || peer_of(pid)&.stolen
    raise Errno::ESRCH
  end

  def wait2_of(_owner, pid, _flags)
    peer = @peers.find { |one| one.pid == pid && !one.reaped }
    raise Errno::ECHILD if peer.nil? || !peer.parent_is_master?
    return if peer.alive

    # Some code of the app's may wait for all children.
    peer.reaped = true
    note("#{peer} is reaped")
    [pid, peer.status]
  end

  # What the master holds of its children.
  def forked_of(_owner, pid) = FakeChild.new(self, pid)

  def adopted_of(_owner, pid, _forker = nil)
    FakeChild.new(self, pid) if @peers.any? { |one| one.pid == pid && !one.reaped && one.parent_is_master? } && @workers.each.none? { |handle| handle.pid == pid }
  end

  def descriptors_of(_owner) = []

  def clock_gettime_of(_owner, *) = @now

  def of_of(_owner, pid)
    return Fastrack::ProcessMemory.new(20 << 20, 10 << 20) if pid == "self"

    peer_of(pid)&.then { |peer| Fastrack::ProcessMemory.new(peer.own + (10 << 20), peer.own) if peer.alive }
  end

  def known_of(_owner) = true
  def foreground_of(_owner) = false
  def install_of(*) = nil
  def line_of(_owner, text, *) = note("log: #{text}")
  def say_of(_owner, text) = note("log: #{text}")

  # For Scoreboard and MasterHooks.
  def new_of(owner, *arguments)
    return @board = FakeBoard.new if owner == Fastrack::Scoreboard

    FakeHooks.new(self, arguments.last)
  end

  # Code that runs with a time limit of its own.
  def limited(seconds, grace, signals)
    raise Fastrack::TimeLimit::Interrupted, "an order has come meanwhile" if grace.zero? && signals.ending_order

    outer, @limit = @limit, { at: (@now + seconds if seconds.positive?), grace: grace, signals: signals, error: Fastrack::TimeLimit::Unfinished }
    yield
  ensure
    @limit = outer
  end

  private def interrupt
    return unless @limit

    if @limit[:signals].ending_order && @limit[:error] != Fastrack::TimeLimit::Interrupted
      @limit.update(error: Fastrack::TimeLimit::Interrupted, at: [@limit[:at], @now + @limit[:grace]].compact.min)
    end
    raise @limit[:error], "it is not done in time" if @limit[:at] && @now >= @limit[:at]
  end
end

{ Fastrack::ControlChannel.singleton_class => %i[select pair fork], Fastrack::HeldChild.singleton_class => %i[forked adopted descriptors], Process.singleton_class => %i[kill wait2 clock_gettime],
  Fastrack::ProcessMemory.singleton_class => %i[of known?], Fastrack::ProcessSetup.singleton_class => %i[foreground?],
  Fastrack::ForkGuard.singleton_class => %i[install], Fastrack::SignalQueue => %i[install], Fastrack::Log.singleton_class => %i[line say],
  Fastrack::Seat.singleton_class => %i[answer], Fastrack::Scoreboard.singleton_class => %i[new], Fastrack::MasterHooks.singleton_class => %i[new] }
  .each { |owner, names| names.each { |name| FakeSystem.answers(owner, name) } }

Fastrack::ControlChannel.prepend(Module.new { def write(message) = (FakeSystem.current&.deliveries(self, message) || 1).times { super(message) } })
