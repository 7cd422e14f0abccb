# frozen_string_literal: true

require "fastrack"
require "fastrack/native"
require "fastrack/worker/control_channel"

RSpec.describe "Fastrack::ControlChannel", once: nil do
  channel = Fastrack::ControlChannel
  # Messages of a worker that has become the mold, and of a master that has not known so.
  noise_of_master = [channel::GO, channel::STAY, channel::PROMOTE, channel::KNOWN]
  noise_of_mold = ["#{channel::FORBID} app.rb:3", channel::ENDING, channel::OUTGROWN, channel::LIMIT_REACHED]

  # The master's end, and a promoted worker's.
  def pair = Fastrack::ControlChannel.pair.each { |one| (@channels ||= []) << one }.tap { |ours, _| ours.from = :promoted }

  after { @channels&.each(&:close) }

  # A mold that "forks" a process with a number of its own for each order, and says more than it should. Notes each order.
  def noisy_mold(theirs, random, noise, orders)
    Thread.new do
      said = []
      while (taken = theirs.take_orders)
        taken.each { |order| order.descriptors.each(&:close) }
        order = taken.find { |one| one.kind == Fastrack::ControlChannel::FORK } or next
        orders << order
        random.rand(3).times { theirs.write(noise.sample(random: random)) }
        # An answer that comes once more, or late.
        theirs.write(said.sample(random: random)) if said.any? && random.rand(2).zero?
        theirs.forked(order, 1000 + orders.size)
        said << "#{Fastrack::ControlChannel::FORKED} #{order.numbers.first} #{1000 + orders.size}"
      end
    end
  end

  it "gives the master the pid that belongs to each order, whatever else is said meanwhile, and has the mold fork for orders alone" do
    50.times do |seed|
      random = Random.new(seed)
      ours, theirs = pair
      mold = noisy_mold(theirs, random, noise_of_mold, orders = [])
      others = []
      20.times do |index|
        random.rand(3).times { ours.write(noise_of_master.sample(random: random)) }
        expect(ours.order(index, index.even? ? index : nil, [7], [$stdin], 20) { |other| others << other }).to eq(1001 + index), "seed #{seed}"
      end
      ours.close
      expect(mold.join(20)).to eq(mold)
      expect(orders.map { |order| order.numbers.drop(1) }).to eq(Array.new(20) { |index| [1, index, index.even? ? index : nil, 7] })
      expect(others.map { |other| other.to_a.flatten.join(" ") } - noise_of_mold).to eq([])
    end
  end

  it "does not take an earlier order's answer for this one's" do
    ours, theirs = pair
    expect { ours.order(0, 0, [], [$stdin], 0) }.to raise_error(Fastrack::Error, /has not answered/)
    mold = Thread.new do
      orders = []
      orders.concat(theirs.take_orders) while orders.size < 2
      orders.each.with_index(7) { |order, pid| theirs.forked(order, pid) && order.descriptors.each(&:close) }
    end
    expect([ours.order(1, 1, [], [$stdin], 20), mold.join(20)]).to eq([8, mold])
  end

  it "gives an order its descriptors, though its text comes in two pieces between other messages" do
    ours, theirs = pair
    ours.write("#{channel::EVENT} #{"x" * (channel::PIECE - 12)}")
    expect { ours.order(0, 0, [7], [$stdin, $stdout], 0) }.to raise_error(channel::NoAnswer)
    ours.write(channel::START)
    orders = []
    orders.concat(theirs.take_orders) while orders.size < 3
    expect(orders.map { |order| [order.kind, order.descriptors.each(&:close).size, order.whole?] }).to eq([["event", 0, true], ["fork", 2, true], ["start", 0, true]])
  end

  it "has a mold read its orders later where the system lacks memory" do
    socket = Object.new.tap { |one| one.define_singleton_method(:recvmsg) { |*, **| raise Errno::ENOBUFS } }
    expect(channel.new(socket).take_orders).to eq([])
  end

  it "gives the last messages of a process before its end, also where that has not read all" do
    ours, theirs = pair
    ours.write(channel::PROMOTE)
    theirs.write(channel::READY)
    theirs.write(channel::ENDING)
    theirs.close
    expect(Array.new(2) { ours.read&.map(&:kind) }).to eq([[channel::READY, channel::ENDING], nil])
  end

  it "has a forked process wait until it is known, whatever signals come meanwhile" do
    before = trap(:USR1) {}
    pid, ours = channel.fork(pair, []) { |theirs| theirs.write(channel::READY) }
    @channels << ours
    20.times do
      Process.kill(:USR1, pid)
      expect(ours.to_io.wait_readable(0.01)).to be_nil
    end
    ours.write(channel::KNOWN)
    expect([ours.to_io.wait_readable(20), ours.read.map(&:kind)]).to eq([ours.to_io, [channel::READY]])
    expect(Process.wait(pid)).to eq(pid)
  ensure
    trap(:USR1, before)
  end
end
