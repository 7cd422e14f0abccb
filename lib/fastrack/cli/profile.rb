# frozen_string_literal: true

require "json"
require_relative "../error"
require_relative "../version"

module Fastrack
  # `fastrack profile`: has a worker of a running server sample its threads that have requests, and writes two files with their stacks.
  class ProfileCommand
    # Seconds between two looks, and for the answer beyond the profile's own time.
    LOOK_INTERVAL = 0.2
    PATIENCE = 30

    # Methods that are shown.
    SHOWN = 5

    # A thread's state, in place of the outermost frame.
    STATES = ["(runs)", "(waits for the GVL)", "(off the GVL)"].freeze

    # @param monitor [MonitorClient]
    # @param workers [Array<Hash>] of the server's status
    # @param nr [Integer, nil] nil: the busiest worker
    # @param gvl [Boolean] whether the stacks are divided by the threads' states
    def initialize(monitor, workers, nr, seconds, gvl)
      @monitor = monitor
      # Of two with one number, the newer one comes last.
      @nr = nr || workers.reverse.max_by { |one| [one["state"] == "busy" ? 1 : 0, one["requests"].to_i] }&.fetch("nr") || raise(Error, "there is no worker")
      @seconds = seconds
      @gvl = gvl
    end

    # @return [Integer] the exit status
    # @raise [Error]
    def run
      before = @monitor.profile.to_h["number"].to_i
      @monitor.order("/profile/#{@nr}/#{@seconds}") or raise Error, "the server has ended"
      found = await(before)
      raise Error, "no profile: #{found["reason"]}" unless found["state"] == "done"

      stacks = stacks_of(found)
      # A worker without requests has nothing to tell.
      puts "worker #{found["worker"]} (pid #{found["pid"]}) had no request in these #{@seconds} s" if stacks.empty?
      write(found, stacks) if stacks.any?
      stacks.empty? ? 1 : 0
    end

    private

    def await(before)
      latest = now + @seconds + PATIENCE
      loop do
        found = @monitor.profile
        return found if found && found["number"] > before && found["state"] != "running"
        raise Error, "no profile within #{@seconds + PATIENCE} s" if now > latest

        sleep LOOK_INTERVAL
      end
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # @return [Hash{Array<String> => Integer}] samples by stack, the outermost frame first
    def stacks_of(found)
      names = found["frames"].to_h
      stacks = found["stacks"].each_with_object(Hash.new(0)) do |(count, numbers), all|
        frames = numbers.filter_map { |number| names[number] }
        all[@gvl || !STATES.include?(frames.first) ? frames : frames.drop(1)] += count
      end
      raise Error, "the worker does not tell what its threads have to do with the GVL: set timings true, on Ruby 3.2 or later" if @gvl && stacks.any? && stacks.none? { |frames, _| STATES.include?(frames.first) }

      stacks
    end

    def write(found, stacks)
      base = "fastrack-profile-#{found["worker"]}-#{found["pid"]}-#{Time.now.strftime("%Y%m%dT%H%M%S")}"
      files = { "#{base}.collapsed.txt" => collapsed(stacks), "#{base}.speedscope.json" => JSON.generate(speedscope(base, stacks)) }
      # A new file only, which is no link that another user has laid out here.
      files.each { |name, text| File.open(name, File::WRONLY | File::CREAT | File::EXCL, 0o600) { |file| file.write(text) } }
      sum = stacks.values.sum
      puts "#{sum} samples of worker #{found["worker"]} (pid #{found["pid"]})", files.keys.map { |name| "  #{File.expand_path(name)}" }, "where the time went:"
      top(stacks).each { |name, count| puts format("  %5.1f %%  %s", count * 100.0 / sum, name) }
    rescue SystemCallError => e
      raise Error, "cannot write the profile here: #{e.message}"
    end

    # The methods in which most samples were taken.
    def top(stacks)
      leaves = stacks.each_with_object(Hash.new(0)) { |(frames, count), all| all[frames.last] += count }
      leaves.sort_by { |name, count| [-count, name.to_s] }.first(SHOWN)
    end

    # A line for each stack, for flamegraph.pl, inferno and others. A semicolon divides frames.
    def collapsed(stacks) = stacks.map { |frames, count| "#{frames.map { |frame| frame.tr(";", ":") }.join(";")} #{count}\n" }.sort.join

    # https://www.speedscope.app/file-format-schema.json
    def speedscope(name, stacks)
      frames = stacks.keys.flatten.uniq
      numbers = frames.each_with_index.to_h
      profile = { type: "sampled", name: name, unit: "none", startValue: 0, endValue: stacks.values.sum,
                  samples: stacks.keys.map { |stack| stack.map { |frame| numbers.fetch(frame) } }, weights: stacks.values }
      { "$schema": "https://www.speedscope.app/file-format-schema.json", shared: { frames: frames.map { |frame| { name: frame } } }, profiles: [profile],
        name: name, activeProfileIndex: 0, exporter: "fastrack #{VERSION}" }
    end
  end
end
