# frozen_string_literal: true

require_relative "../text"
require_relative "control_channel"

module Fastrack
  # A worker's side of `fastrack profile`. A native thread samples the threads that have requests (ext/fastrack/src/worker/profiler.rs). The
  # master's signal begins and ends that. The result goes over the control channel: each frame once, then each stack.
  class WorkerProfile
    # Most characters of a frame.
    LONGEST_FRAME = 300

    # Most frames of a stack. The innermost ones are kept.
    MOST_FRAMES = 250

    # Seconds that the master may take for the whole result, and between two tries to write.
    TIME = 10
    PAUSE = 0.005

    # @param engine [Engine]
    # @param channel [ControlChannel] to the master
    def initialize(engine, channel)
      @engine = engine
      @channel = channel
    end

    # Begins or ends the profile. Called in a signal handler.
    def toggle = @engine.begin_profile || Thread.new { finish }

    # Ends the profile, if there is one, and tells the master what there is.
    def finish
      found = @engine.end_profile or return
      @ends = now + TIME
      numbers = Hash.new { |all, frame| all[frame] = all.size.tap { |number| say("#{ControlChannel::PROFILE_FRAME} #{number} #{frame}") } }
      stacks(found).each { |frames, count| say("#{ControlChannel::PROFILE_STACK} #{count} #{frames.map { |frame| numbers[frame] }.join(" ")}") }
      say(ControlChannel::PROFILED)
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # @return [Hash{Array<String> => Integer}] how often each stack was seen, the outermost frame first
    def stacks(found)
      found.each_with_object(Hash.new(0)) do |(count, state, text), all|
        frames = text.lines(chomp: true).first(MOST_FRAMES).map { |line| frame(line) }.reverse
        frames = ["(stacks that were too many)"] if frames.empty?
        all[[*state, *frames]] += count
      end
    end

    # By methods, not by lines: a graph of lines has too many branches.
    def frame(line)
      path, label = line.match(/\A(.*):\d+:in (.*)\z/)&.captures
      Text.printable("#{label || line} (#{path.to_s.delete_prefix("(").delete_suffix(")")})")[0, LONGEST_FRAME]
    end

    # The master reads when it has time.
    def say(text) = (sleep PAUSE until @channel.write(text) || @channel.closed? || now > @ends)
  end
end
