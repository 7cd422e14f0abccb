# frozen_string_literal: true

require "socket"
require_relative "../worker/control_channel"

module Fastrack
  # A new master's view of the master that has started it, and that serves until told to end.
  class Predecessor
    VARIABLE = "FASTRACK_PREDECESSOR"

    # Takes the variable with the channel's descriptor out of the environment.
    #
    # @param environment [Hash, ENV]
    # @return [Predecessor, nil] nil in a server that nobody's place is taken by
    def self.take_over(environment = ENV)
      number = environment.delete(VARIABLE) or return
      socket = UNIXSocket.for_fd(Integer(number, 10))
      socket.close_on_exec = true
      new(ControlChannel.new(socket))
    rescue SystemCallError, ArgumentError
      # It was another's variable, or the descriptor got lost on the way.
      nil
    end

    # @return [ControlChannel]
    attr_reader :channel

    # @param channel [ControlChannel]
    def initialize(channel)
      @channel = channel
    end

    # All workers serve.
    #
    # @param quit [Boolean] whether the old master is to end now
    def ready(quit:)
      @channel.say(quit ? ControlChannel::READY_AND_QUIT : ControlChannel::READY)
    end

    # @return [Array<String>, nil] what it has said; nil when it is gone
    def words
      @channel.heard
    end
  end
end
