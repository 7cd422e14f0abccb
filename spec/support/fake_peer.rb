# frozen_string_literal: true

# A process of a FakeSystem: generation 0, a worker, or the mold that a worker has become. It says and does what Worker, FirstMold and PromotedMold do,
# one step at a time, and what may go wrong in them.
#
#     waiting --KNOWN--> loading --> mold                                   (generation 0)
#     waiting --KNOWN--> reading --> handed --answer--> loading --> mold    (generation 0 of a HUP)
#     waiting --KNOWN--> booting --> serving --> finishing --> ending       (a worker)
#                                    |   ^              +--> promoting --> mold
#                                    +-> asking (may it exit?)
class FakePeer
  CHANNEL = Fastrack::ControlChannel

  # Signals that end a program which has no handler yet.
  DEADLY = %w[USR1 USR2 PWR TERM QUIT INT].freeze

  attr_reader :pid, :nr, :ours, :mold, :state, :status, :version, :alive, :hung, :requests, :channel, :stolen
  attr_accessor :reaped

  # @param ours [Fastrack::ControlChannel] the master's end
  # @param first [Boolean] whether this is generation 0
  # @param handing [Fastrack::Handing, nil] of a new program
  # @param mold [FakePeer, nil] what has forked the worker
  def initialize(system, pid, channel, ours, code:, version:, first: false, handing: nil, nr: nil, mold: nil)
    @system, @pid, @channel, @ours = system, pid, channel, ours
    @first, @handing, @code, @version, @nr, @mold = first, handing, code, version, nr, mold
    @alive = true
    @reaped = @hung = @poisoned = false
    @state = :waiting
    @signals, @orders, @children = [], [], []
    @requests = 0
    @limit = system.random.rand(3).zero? ? 5 + system.random.rand(40) : nil
  end

  def first? = @first
  def poisoned? = @poisoned
  def parent_is_master? = first? || @system.subreaper?
  def to_s = "#{first? ? "generation 0" : "worker #{@nr}"} #{@pid} (#{@state}#{", hangs" if @hung}#{", dead" unless @alive}, code #{@version})"

  # Bytes that only this process has. A worker of a mold's has less than one that has served for long.
  def own
    return 2 << 20 if first? || @state == :waiting
    return (@spoiled ? 60 : 3) << 20 if @state == :mold

    base = @mold&.first? ? 5 : 1
    (base + [@requests, 20].min * (@mold&.first? || @mold&.poisoned? ? 1 : 0.1)).to_i << 20
  end

  def readable? = @alive && !@channel.closed? && !IO.select([@channel], nil, nil, 0).nil?

  # @param readable [Boolean] whether there is something to read
  def enabled?(readable)
    return false if @hung || !@alive

    case @state
    when :waiting then readable
    when :serving then stopping?
    when :handed then !IO.select([@handing], nil, nil, 0).nil?
    when :mold then readable || @orders.any? || @signals.any? || lost_children.any?
    else true
    end
  end

  def act(readable) = send(:"act_#{@state}", readable)

  def signal(name)
    return if name.to_s == "0"

    name = name.to_s
    return die(9) if name == "KILL"
    return unless @alive

    if %i[reading handed loading].include?(@state) && @handing && DEADLY.include?(name)
      @system.broken("SIG#{name} ends #{self}") unless %w[TERM QUIT].include?(name)
      return die(Signal.list.fetch(name))
    end

    @signals << name
  end

  # @param status [Integer] as of wait(2)
  def die(status, words = nil)
    return unless @alive

    Fastrack::LastWords.writer&.write_nonblock("#{@pid} #{words}\n") if words
    @alive = false
    @status = Fastrack::ExitStatus.new(@pid, status)
    @system.note("#{self} ends with #{status}")
    @orders.each { |order| order.descriptors.each(&:close) }
    @channel.close
    @handing&.close
    # Nobody else waits for it.
    @reaped = true if !parent_is_master? && !@mold.alive
    @children.each { |child| child.reaped = true unless child.alive } unless @system.subreaper?
    @system.child_ended if parent_is_master?
  end

  def close
    [@channel, *@handing].each { |one| one.close unless one.closed? }
    @ours.close unless @ours.closed?
  end

  # @param count [Integer] requests
  def serve(count)
    @requests += count
    return if @limit.nil? || @requests < @limit

    @limit = nil
    tell(CHANNEL::LIMIT_REACHED)
    @state = :asking
  end

  private

  def fault?(percent) = @system.fault?(percent)

  def stopping? = @signals.any? { |name| %w[TERM QUIT].include?(name) }

  # A message may be lost or come twice.
  def tell(message)
    return @system.note("#{message.inspect} of #{self} is lost") if fault?(1)

    (fault?(3) ? 2 : 1).times { @channel.write(message) }
  end

  # @return [Array<String>, nil] kinds of the master's messages
  def read = @channel.read&.map(&:kind)

  def hang
    @system.note("#{self} hangs")
    @hung = true
  end

  def act_waiting(_readable)
    kinds = read
    return die(1 << 8) if kinds.nil?

    @state = first? ? (@handing ? :reading : :loading) : :booting if kinds.include?(CHANNEL::KNOWN)
  end

  def act_reading(readable)
    return die(1 << 8) if readable
    return hang if fault?(2)

    @handing.put(fault?(3) ? { "refused" => "the ConfigFile is wrong" } : { "settings" => @version })
    @state = :handed
  end

  def act_handed(_readable)
    return die(1 << 8) unless @handing.take

    @state = :loading
  end

  # OrphanGuard: nothing comes before it has booted but the end of the channel.
  def act_loading(readable)
    return die(1 << 8) if readable
    return die(1 << 8, "it does not load") if fault?(6) || @code == :bad_load
    return hang if fault?(2)

    tell(CHANNEL::MOLD)
    @state = :mold
  end

  def act_booting(readable)
    return die(1 << 8) if readable
    return die(0) if stopping?
    return die(1 << 8, "it does not boot") if fault?(5) || @code == :bad_boot || @mold&.poisoned?
    return hang if fault?(3)

    @state = :serving
    tell(CHANNEL::READY)
  end

  def act_serving(_readable)
    return die(1 << 8) if fault?(5)

    @state = :finishing
  end

  # A worker that gets no answer in time serves on.
  def act_asking(readable)
    return if !readable && @system.random.rand(3).positive?

    kinds = readable ? read : []
    @promoted = true if kinds&.include?(CHANNEL::PROMOTE)
    @state = kinds.nil? || kinds.include?(CHANNEL::GO) ? :finishing : :serving
  end

  def act_finishing(_readable)
    return hang if fault?(2)

    tell(CHANNEL::ENDING)
    @promoted ||= read.to_a.include?(CHANNEL::PROMOTE)
    @state = @promoted ? :promoting : :ending
  end

  def act_promoting(_readable)
    return die(1 << 8) if fault?(3)
    return hang if fault?(3)

    if fault?(5)
      Fastrack::LastWords.writer.write_nonblock("#{@pid} has native threads\n")
      return @state = :ending
    end
    # It collects what its children share.
    @spoiled = fault?(10)
    @signals.clear
    tell(CHANNEL::MOLD)
    @state = :mold
  end

  def act_ending(_readable)
    return hang if fault?(2)

    tell(CHANNEL::ENDING)
    die(0)
  end

  def act_mold(readable)
    if readable
      orders = @channel.take_orders or return die(0)
      @orders.concat(orders)
    elsif @orders.any? then obey(@orders.shift)
    elsif @signals.any? then note_signal(@signals.shift)
    else reap(lost_children.first)
    end
  end

  def note_signal(name)
    tell("#{CHANNEL::STOP} #{name}") if %w[TERM INT].include?(name)
  end

  # Where there is no subreaper, a mold waits for its workers.
  def lost_children = @system.subreaper? ? [] : @children.reject { |child| child.alive || child.reaped }

  def reap(child)
    child.reaped = true
    tell("#{CHANNEL::REAPED} #{child.pid} #{child.status.to_i}")
  end

  def obey(order)
    case order.kind
    when CHANNEL::FORK then fork_worker(order)
    when CHANNEL::START then tell(CHANNEL::STARTED)
    when CHANNEL::FINISH then fault?(3) ? hang : die(0)
    end
  end

  def fork_worker(order)
    socket, *others = order.descriptors
    others.each(&:close)
    mishap = [[:dies, 2], [:hangs, 1], [:refuses, 3]].find { |_, percent| fault?(percent) }&.first
    socket.close if mishap
    case mishap
    when :dies then return die(11)
    when :hangs then return hang
    when :refuses then return answer(order, 0)
    end
    child = @system.start(socket, nr: order.numbers[2], mold: self, code: @code, version: @version)
    @children << child
    # From then on its children inherit a lock that is held.
    @poisoned ||= !first? && fault?(8)
    fault?(2) ? die(11) : answer(order, child.pid)
  end

  # An answer may come twice, and behind other messages.
  def answer(order, pid)
    tell("#{CHANNEL::MEMORY} 1000 500") if first? && @system.random.rand(4).zero?
    @last&.call if fault?(5)
    @last = -> { @channel.forked(order, pid) }
    tell("#{CHANNEL::FORKED} #{order.numbers.first} #{pid}")
  end
end
