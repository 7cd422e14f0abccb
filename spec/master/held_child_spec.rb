# frozen_string_literal: true

require "fastrack"
require "fastrack/native"
require "fastrack/process/held_child"

RSpec.describe "Fastrack::HeldChild", once: nil do
  held = Fastrack::HeldChild

  after do
    held.instance_variable_get(:@held).values.each(&:release)
    @pids&.each do |pid|
      Process.kill(:KILL, pid)
      Process.wait(pid)
    rescue SystemCallError
      nil
    end
  end

  def sleeping = spawn("sleep", "600").tap { |pid| (@pids ||= []) << pid }

  # A process that is not this one's child, as those of root's are not the master's.
  def stranger
    reader, writer = IO.pipe
    Process.wait(fork { writer.puts(spawn("sleep", "600")) && exit!(0) })
    reader.gets.to_i.tap { |pid| (@pids ||= []) << pid }
  ensure
    [reader, writer].each(&:close)
  end

  # As on systems without pidfds, and where a sandbox forbids their signals.
  ways = {
    "by pidfd" => proc {},
    "without pidfds" => proc { allow(Fastrack::ChildProcess).to receive(:hold) },
    "where a sandbox forbids pidfd_send_signal(2)" => proc { allow(Fastrack::ChildProcess).to receive(:signal).and_return(Errno::EPERM::Errno) }
  }
  ways.each do |how, prepare|
    it "signals a child #{how}, and nobody once other code has waited for it" do
      instance_exec(&prepare)
      child = held.forked(sleeping)
      expect([child.ended?, child.signal(:TERM)]).to eq([false, true])
      eventually { child.ended? }
      expect([child.status.termsig, child.signal(:TERM)]).to eq([Signal.list["TERM"], false])

      lost = held.forked(sleeping)
      Process.kill(:KILL, lost.pid)
      Process.wait(lost.pid)
      killed = []
      allow(Process).to receive(:kill) { |*arguments| killed << arguments }
      expect([lost.signal(:TERM), lost.ended?, lost.status, killed]).to eq([false, true, nil, []])
      allow(Process).to receive(:kill).and_call_original
    end
  end

  it "adopts a child once, and neither another process nor another user's" do
    pid = sleeping
    expect([stranger, Process.pid, Process.ppid, 1, 0, -1, -pid, (1 << 31) - 1].map { |other| held.adopted(other, Process.pid) }).to all(be_nil)
    allow(Fastrack::ProcStat).to receive(:users).and_call_original
    allow(Fastrack::ProcStat).to receive(:users).with(1).and_return([Process.uid, Process.euid, Process.uid + 1, Process.euid])
    expect(held.adopted(pid, 1)).to be_nil
    child = held.adopted(pid, Process.pid)
    expect([child.pid, held.adopted(pid, Process.pid), held.descriptors.compact.size]).to eq([pid, nil, child.descriptor ? 1 : 0])
    child.release
    expect([child.signal(:KILL), held.adopted(pid, Process.pid).pid, held.descriptors.compact.size]).to eq([false, pid, child.descriptor ? 1 : 0])
  end
end
