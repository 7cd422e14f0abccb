# frozen_string_literal: true

require "fastrack"
require "fastrack/native"
require "fastrack/launcher"

# What other processes may do between two steps of the master or a mold, at moments that no example from outside can hit.
RSpec.describe "A moment", once: "Ruby of the master" do
  # What the master has said so far.
  let(:said) { [] }

  before { allow(Fastrack::Log).to receive(:line) { |text, *| said << text } }

  it "in which an order to end the server comes with the word that plugins have started, does not lose that word" do
    stopped = Fastrack::TimeLimit::Interrupted
    mold = Object.new
    mold.define_singleton_method(:messages) { Thread.new(Thread.current) { |thread| thread.raise(stopped) }.join && %w[started] }
    mold.define_singleton_method(:channel) { $stdin }
    generations = Fastrack::Generations.allocate
    taken = []
    generations.instance_variable_set(:@workers, Object.new.tap { |workers| workers.define_singleton_method(:receive_all) { |_, messages| taken.concat(messages) } })
    allow(Fastrack::ControlChannel).to receive(:select)
    Thread.handle_interrupt(stopped => :immediate) { expect { generations.send(:await, mold) { false } }.to raise_error(stopped) }
    expect(taken).to eq(%w[started])
  end

  it "in which the only candidate for a refork gets a stream costs the refork at most" do
    looks = [false, true].each
    handle = Struct.new(:requests).new(7)
    { serving?: true, memory: nil, lingering?: false, retire: nil }.each { |name, value| handle.define_singleton_method(name) { |*| value } }
    handle.define_singleton_method(:keeps_clients?) { looks.next }
    launcher = double(loaded?: true, subreaper?: true)
    workers = double(each: [handle], size: 2, forbidden_by: nil, scoreboard: double(totals: { requests: 7 }))
    orders = double.as_null_object
    expect(Fastrack::Refork.new(launcher, workers, orders) {}.begin(nil)).to be(true)
  end

  it "in which a killed process ends and another one gets its pid, does not leave that without a time limit" do
    configuration = double(worker_boot_timeout: 60, worker_timeout: 0, request_timeout: 0)
    generation0 = lambda do |spawned_at|
      Fastrack::MoldHandle.new(double(pid: 5_000_001, child?: true), double("from=": nil), spawned_at).tap { |handle| handle.define_singleton_method(:signal) { |_| nil } }
    end
    handles = [generation0.call(0.0)]
    workers = double(lingering: double(step: nil, due_at: nil)).tap { |one| one.define_singleton_method(:each) { handles.each } }
    timeout = Fastrack::WorkerTimeout.new(workers)
    handles.first.kill("another HUP has come")
    timeout.step(1.0, configuration)
    handles.replace([generation0.call(1.0)])
    timeout.step(1.0, configuration)
    expect(timeout.due_at).to eq(61.0)
  end

  it "in which a mold hangs does not keep its killed workers in the master's books, where they are the mold's children" do
    reader, writer = IO.pipe
    # Nobody waits for its child.
    mold = fork { writer.puts(fork { exit!(0) }) || sleep }
    pid = reader.gets.to_i
    eventually { ProcessTable.entry(pid).state == "Z" }
    ours, theirs = Fastrack::ControlChannel.pair
    handle = Fastrack::WorkerHandle.new(0, Fastrack::GrandChild.new(pid, nil), 1, ours, nil, 0.0)
    theirs.close
    handle.messages
    expect(handle.reap(1.0)).to be_nil
    handle.kill("GracefulTimeout")
    expect(handle.reap(1.0).to_s).to eq("exited; its status is unknown, because the app has waited for it")
  ensure
    Process.kill(:KILL, mold) && Process.wait(mold)
    [ours, theirs, reader, writer].each(&:close)
  end

  it "in which a worker ends after generation 0, and the master does not know of the latter, costs no event: the next generation 0 gets it" do
    (lost, theirs), (ours, reader) = Array.new(2) { Fastrack::ControlChannel.pair }
    theirs.close
    workers = Object.new.extend(Fastrack::ExitEvents)
    { configuration: double(after_worker_exit: true), mold: nil }.each { |name, value| workers.define_singleton_method(name) { value } }
    ended = ->(pid) { workers.send(:note_exit, double(nr: 0, pid: pid, generation: 1), double(status: 9)).then { workers.send(:send_exits) } }
    workers.first, successor = [lost, ours].map { |channel| Fastrack::MoldHandle.new(double(pid: 5_000_001), channel, 0.0).tap(&:molded) }
    most = Fastrack::ExitEvents::MOST_WAITING
    (0..most).each { |number| ended.call(number) }
    workers.first = successor
    read = -> { reader.to_io.wait_readable(0) ? reader.take_orders : [] }
    taken = Enumerator.produce { read.call.tap { workers.send(:send_exits) } }.take_while(&:any?).flatten
    expect(taken.map { |order| [order.kind, *order.words].join(" ") }).to eq((1..most).map { |number| "event after_worker_exit 0 #{number} 1 9" })
  ensure
    [lost, ours, reader].each(&:close)
  end

  it "in which a native thread ends that would keep a worker from becoming the mold is no failure" do
    stub_const("Fastrack::PromotedMold::TIME_TO_END", 0)
    allow(Dir).to receive(:children).with("/proc/self/task").and_return([Process.pid.to_s, "5000001", "5000002"])
    expect(Fastrack::PromotedMold.allocate.send(:foreign_threads)).to eq([])
  end

  it "in which TTOU takes a worker of the new code does not end a HUP while another slot has a worker of the old one" do
    workers = Fastrack::Workers.allocate
    serving = ->(nr, generation) { double(nr: nr, generation: generation, serving?: true, rejected?: false) }
    { handles: [serving[0, 1], serving[1, 2], serving[2, 2]], size: 2 }.each { |name, value| workers.instance_variable_set(:"@#{name}", value) }
    expect(workers.complete?(2)).to be(false)
  end

  it "in which the code of a HUP has loaded does not make a mold's worker on trial one of the new code" do
    channel, = Fastrack::ControlChannel.pair
    trial = Fastrack::WorkerHandle.new(0, double(pid: 5_000_001), 2, channel, nil, 0.0).tap { |handle| handle.instance_variable_set(:@state, :serving) }
    workers = Fastrack::Workers.allocate
    { handles: [trial], trial: trial, size: 1 }.each { |name, value| workers.instance_variable_set(:"@#{name}", value) }
    generations = Fastrack::Generations.allocate
    launcher = double(open_listeners: [], listeners: [])
    { workers: workers, launcher: launcher, coming: double(forbids: nil, ready?: false, remake?: false) }.each { |name, value| generations.instance_variable_set(:"@#{name}", value) }
    expect(generations.send(:adopt, 1)).to eq(2)
    expect(workers.complete?(2)).to be(false)
  end
end
