# frozen_string_literal: true

require "socket"
require_relative "../log"
require_relative "../worker/control_channel"

module Fastrack
  # What a new master takes over from the old one, besides the listeners: a channel to it, and the workers' shared queue.
  # Both come as descriptors in environment variables, which are removed: programs that the app starts do not have them.
  class OldMaster
    # The channel's descriptor.
    VARIABLE = "FASTRACK_PREDECESSOR"
    # The queue's layout and descriptors. An old master with another layout has its workers close idle connections, as at
    # any other end: nobody takes them over.
    QUEUE_VARIABLE = "FASTRACK_QUEUE"

    class << self
      # @param environment [Hash, ENV]
      # @return [OldMaster, nil] nil if there is none
      def take_over(environment = ENV)
        number = environment.delete(VARIABLE) or return
        socket = UNIXSocket.for_fd(Integer(number, 10))
        socket.close_on_exec = true
        new(ControlChannel.new(socket))
      rescue SystemCallError, ArgumentError
        # The variable is not ours, or the descriptor got lost.
        nil
      end

      # @param wanted [Boolean] whether the workers of this server share a queue
      # @param environment [Hash, ENV]
      # @return [SharedQueue, nil] the old master's, or a new one
      def take_over_queue(wanted, environment = ENV)
        text = environment.delete(QUEUE_VARIABLE)
        inherited = inherit_queue(text, wanted) if text
        inherited || (wanted ? SharedQueue.new : nil)
      end

      private

      def inherit_queue(text, wanted)
        layout, _, numbers = text.rpartition(":")
        files = numbers.split(",").map { |number| IO.for_fd(Integer(number, 10)) }
        raise ArgumentError, "it is of another version" if wanted && layout != SharedQueue::LAYOUT

        # The queue duplicates the descriptors.
        SharedQueue.from_fds(files.map(&:fileno)) if wanted
      rescue SystemCallError, ArgumentError, TypeError, IOError => e
        Log.line("#{QUEUE_VARIABLE} cannot be used (#{e.message}): waiting connections are not taken over") if wanted
        nil
      ensure
        files&.each(&:close)
      end
    end

    # @return [ControlChannel]
    attr_reader :channel

    # @return [Integer, nil] nil if it is not the parent of this process: rackup's --daemonize forks
    attr_reader :pid

    # @param channel [ControlChannel]
    def initialize(channel)
      @channel = channel
      @pid = Process.ppid unless Process.ppid == 1
    end

    # All workers serve.
    #
    # @param quit [Boolean] whether the old master is to quit now
    def ready(quit:) = @channel.write(quit ? ControlChannel::READY_AND_QUIT : ControlChannel::READY)
  end
end
