# frozen_string_literal: true

# What holds whenever the master sleeps, and once nothing goes wrong any more.
class FakeWatch
  def initialize(system, master)
    @system = system
    @workers, @generations, @refork, @orders, @shutdown, @generation =
      %i[@workers @generations @refork @orders @shutdown @generation].map { |name| master.instance_variable_get(name) }
    @handles = @workers.each.to_a
  end

  # @param until_at [Float, nil] when the master wakes up by itself
  def check(until_at)
    each_is_its_own
    nobody_is_unknown
    slots_have_one
    empty_ones_have_a_reason(until_at)
    places = @system.board.peers.keys
    claimed = @handles.filter_map(&:slot)
    @system.broken("places in the scoreboard: #{places.sort}, of workers: #{claimed.sort}") unless places.sort == claimed.sort
  end

  # @return [String, nil] what is not as it should be
  def unrest
    return "HUP goes on" if @generations.renewing?
    return "a refork goes on" if @refork.begun?

    open = @orders.to_a.select { |order| order[2] == "begun" }
    return "no outcome of #{open}" if open.any?

    workers = @handles.reject { |handle| handle.mold? || handle.first? }
    return "workers #{workers.map { |one| [one.nr, one.state] }}" unless workers.map(&:nr).sort == [*0...@workers.size] && workers.all?(&:serving?)
    return "generations #{workers.map(&:generation)} instead of #{@generation}" unless workers.all? { |one| one.generation >= @generation }
    return "nobody forks workers" unless @workers.source

    strangers = @system.peers.select(&:alive).reject { |peer| @handles.any? { |handle| handle.pid == peer.pid } }
    strangers += @system.peers.select { |peer| peer.alive && !peer.first? && !%i[serving mold].include?(peer.state) }
    return strangers.join(", ") if strangers.any?

    # Generation 0 ends once no worker has failed for a while.
    molds = @handles.select(&:mold?)
    "molds #{molds.map(&:name)}" if molds.size > 1
  end

  private

  # No answer is taken for another order's: pid, number and channel of a handle are one process's.
  def each_is_its_own
    @handles.each do |handle|
      peer = @system.peer_of(handle.pid)
      own = peer && handle.channel.equal?(peer.ours) && handle.first? == peer.first? && handle.nr == peer.nr
      @system.broken("#{handle.name} is another process: #{peer}") unless own
    end
  end

  # A process that the master does not know has read nothing, and reads the end of its channel.
  def nobody_is_unknown
    known = @handles.map(&:pid)
    @system.peers.each do |peer|
      next if !peer.alive || known.include?(peer.pid) || (peer.state == :waiting && peer.ours.closed?)

      @system.broken("the master does not know #{peer}")
    end
  end

  def slots_have_one
    @workers.staying.group_by(&:nr).each do |nr, found|
      # One that boots may be the other's successor.
      current = found.select { |one| one.serving? && !one.retiring && !one.rejected? && !one.past_limit && one.generation >= @generation }
      @system.broken("worker #{nr} is there #{current.size} times") if current.size > 1
      @system.broken("worker #{nr} has #{found.size} processes") if found.size > 2
    end
    count = @handles.count { |handle| !handle.mold? && !handle.first? && handle.served.nil? && @system.peer_of(handle.pid).alive }
    # A slot is filled at once whose worker is told to stop.
    @system.broken("#{count} workers") if count > (@system.most_workers * 2) + Fastrack::Workers::STOPPING
  end

  # An empty slot is filled at some time, or when the app is loaded.
  def empty_ones_have_a_reason(until_at)
    return if @shutdown || until_at || @workers.free_slot.nil? || @generations.renewing? || @handles.any? { |one| one.first? && !one.loaded? }

    @system.broken("worker #{@workers.free_slot} is missing, and the master waits for nothing")
  end
end
