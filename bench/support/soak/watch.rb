# frozen_string_literal: true

require "fiddle"
require_relative "processes"

module Soak
  # Looks at all processes now and then: at zombies that nobody collects, at memory, and at the machine's own stalls.
  class Watch
    # prctl(2): what a process of the server leaves behind becomes a child of this one.
    PR_SET_CHILD_SUBREAPER = 36

    # Seconds between two looks, and what they come late by when the machine stood still.
    STEP = 0.2
    STALL = 1.0
    # Looks between two at all processes.
    EVERY = 5
    # Seconds for which a zombie may wait for its master.
    ZOMBIE = 20
    # Seconds until a process has what it needs, and bytes that it may grow by afterwards.
    GROWN_UP = 30
    GROWTH = 64 << 20

    # A process's memory when it was grown up, and the most since.
    Memory = Struct.new(:title, :since, :base, :most)

    def self.adopt_orphans
      prctl = Fiddle::Function.new(Fiddle.dlopen(nil)["prctl"], [Fiddle::TYPE_INT, *[Fiddle::TYPE_LONG] * 4], Fiddle::TYPE_INT)
      raise "prctl(2) fails" unless prctl.call(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0).zero?
    end

    def initialize(server, record)
      @server = server
      @record = record
      @memory = {}
      @zombies = {}
      @over = false
      # The descriptors of the first master and its workers, with nobody connected.
      @descriptors = descriptors
      @thread = Thread.new { look until @over }
    end

    def stop
      @over = true
      @thread.join
    end

    # @return [Array<String>] processes that have more open than those at the start
    def leaks
      descriptors.flat_map do |pid, (kind, found)|
        allowed = @descriptors.values.select { |other, _| other == kind }.map { |_, one| one.values.sum }.max
        # A channel to each.
        allowed += @server.molds.size if kind == "master"
        found.values.sum > allowed ? ["#{kind} #{pid} has #{found.values.sum} descriptors, at the start #{allowed}: #{found}"] : []
      end
    end

    # @return [Array<String>] processes whose memory grew and grew
    def growth
      @memory.values.select { |one| one.base && one.most - one.base > GROWTH }
             .map { |one| "#{one.title} grew from #{one.base >> 20} to #{one.most >> 20} MB" }
    end

    def memory_facts
      %w[master worker].map do |kind|
        ones = @memory.values.select { |one| one.title.include?(kind) }
        grown = ones.select(&:base).map { |one| one.most - one.base }.max
        "#{kind}s at most #{ones.map(&:most).max.to_i >> 20} MB#{", grown by #{grown >> 20} MB" if grown}"
      end.join(", ")
    end

    private

    def look
      @looks = @looks.to_i + 1
      began = Bench.now
      sleep STEP
      @record.stall(began - STALL, Bench.now + STALL) if Bench.now - began > STEP + STALL
      look_at_all if (@looks % EVERY).zero?
    end

    def look_at_all
      @server.reap
      master = @server.master or return
      note_zombies(Processes.zombies(master))
      [master, *Processes.children(master)].each { |pid| note_memory(pid) }
    end

    def note_zombies(found)
      @zombies = found.to_h { |pid| [pid, @zombies.fetch(pid, Bench.now)] }
      @zombies.select { |_, since| since && Bench.now - since > ZOMBIE }.each_key do |pid|
        @record.finding("a zombie that the master does not collect: #{pid}")
        @zombies[pid] = false
      end
    end

    def note_memory(pid)
      title = Processes.title(pid)
      return unless title.start_with?("fastrack ")

      bytes = Processes.memory(pid)
      one = @memory[pid] ||= Memory.new("#{title} (pid #{pid})", Bench.now, nil, 0)
      one.base ||= bytes if Bench.now - one.since > GROWN_UP
      one.most = [one.most, bytes].max
    end

    def descriptors
      [["master", [@server.master].compact], ["worker", @server.workers]].flat_map do |kind, pids|
        pids.map { |pid| [pid, [kind, Processes.descriptors(pid)]] }
      end.to_h
    end
  end
end
