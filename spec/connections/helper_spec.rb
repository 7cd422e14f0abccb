# frozen_string_literal: true

# What of it the clients notice is in the other files: here is what it costs those who do not need it.
RSpec.describe "C4 The helper thread, which looks after connections while Ruby is in the app", :quiet, once: "a thread of the engine" do
  # What /proc says of the worker's helper (proc(5), /proc/PID/task).
  def of_helper(file)
    # A new thread has its creator's name for a moment.
    folder = eventually { Dir.glob("/proc/#{@worker}/task/*").find { |task| File.read("#{task}/comm").chomp == "fastrack helper" } }
    File.read("#{folder}/#{file}")
  end

  # How often it has gone to sleep by itself.
  def sleeps = Integer(of_helper("status")[/^voluntary_ctxt_switches:\s+(\d+)/, 1])

  # Nanoseconds that a thread has run.
  def running_time(text) = Integer(text[/\A\d+/])

  before { serve_kept }

  it "C4 gets no signals: they are for Ruby's thread" do
    blocked = of_helper("status")[/^SigBlk:\s+(\h+)/, 1].hex
    signals = %w[TERM QUIT INT HUP USR1 USR2 CHLD].map { |name| Signal.list.fetch(name) }
    expect(signals).to all(satisfy { |number| blocked[number - 1] == 1 })
  end

  it "C4 sleeps while the worker waits for clients, however many are parked" do
    peers = kept_peers(20)
    # It looks when the master has a word for the worker; awake, it would look hundreds of times a second.
    before = sleeps
    expect([peers.first.anything_within?(1), sleeps - before]).to match([false, be < 30])
  end

  it "C4 runs for a small part of what short requests take", alone: "who is kept from the processor looks as if the request took long" do
    worker = -> { running_time(File.read("/proc/#{@worker}/task/#{@worker}/schedstat")) }
    helper = -> { running_time(of_helper("schedstat")) }
    spent = []
    ClientLoop.kept(server, pause: 0) do |running|
      before = [worker.call, helper.call]
      goal = running.bodies.size + 3000
      eventually(20) { running.bodies.size > goal }
      spent = [worker.call, helper.call].zip(before).map { |now, then_| now - then_ }
    end
    expect(spent[1]).to be < spent[0] * 0.2, spent.inspect
  end
end
