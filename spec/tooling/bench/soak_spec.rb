# frozen_string_literal: true

require "open3"
require "rbconfig"
require_relative "../../spec_helper"
require_relative "../../../bench/support/soak"

RSpec.describe "bench/soak", once: "a tool" do
  # Acts that are over soon: the command itself is to be seen at work.
  acts = "hup,kill_worker,term_worker,full_disk,reopen_logs,stop_worker_briefly,crowd,signals,deploy"

  it "has the server stand what it does to it, and says so", :quiet do
    command = [RbConfig.ruby, "-w", File.join(Server::ROOT, "bench/soak"), "--seconds", "10", "--seed", "2", "--acts", acts]
    output, status = Open3.capture2e(*command)
    expect(status.exitstatus).to eq(0), output
    expect(output).to match(/^verdict: stood, \d{2,} requests answered as they should be, [1-9]\d* acts, /)
  end

  # Ruby tells from 3.2 on when a thread waits (rb_internal_thread_add_event_hook).
  it "has several threads in each worker, whose requests are not mixed up", :quiet, once: false do
    command = [RbConfig.ruby, "-w", File.join(Server::ROOT, "bench/soak"), "--seconds", "8", "--seed", "4", "--threads", "5", "--acts", "hup,term_worker"]
    output, status = Open3.capture2e(*command)
    expect(status.exitstatus).to eq(0), output
    expect(output).to match(/ workers, 5 threads each, /)
    expect(output).to match(/^answered: .*\bnamed [1-9]/)
  end

  it "names an act that does not exist" do
    output, status = Open3.capture2e(RbConfig.ruby, File.join(Server::ROOT, "bench/soak"), "--acts", "sing")
    expect([output, status.exitstatus]).to eq(["bench/soak: invalid argument: --acts sing\n", 2])
  end

  describe "a request that has failed" do
    let(:record) { Soak::Record.new.tap { |record| allow(record).to receive(:note) } }

    def fail_now(kind, since: Soak.now)
      record.failure("kept", kind, since, since, Soak.now, "")
    end

    it "is the server's fault where nothing was done to it" do
      fail_now(:unanswered)
      expect(record.unexcused.size).to eq(1)
    end

    it "is not where its connection may have been lost by what was done" do
      since = Soak.now
      record.act("kill_worker", :unanswered, :cut) { nil }
      %i[unanswered cut].each { |kind| fail_now(kind, since: since) }
      expect([record.unexcused, record.excused.size]).to eq([[], 2])
    end

    it "is where it has failed before, or was connected afterwards, or in another way" do
      fail_now(:unanswered)
      since = Soak.now
      record.act("kill_worker", :unanswered, :cut) { nil }
      fail_now(:unanswered)
      fail_now(:"502", since: since)
      expect(record.unexcused.size).to eq(3)
    end
  end
end
