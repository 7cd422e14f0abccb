# frozen_string_literal: true

require_relative "log"

module Fastrack
  # The queue that all workers of a server share for connections whose worker is busy. It outlives the workers, and the
  # master too: a new master takes it over from the one that has started it, so that connections outlast a deploy.
  class SharedQueue
    VARIABLE = "FASTRACK_QUEUE"

    # Takes the variable out of the environment: the processes that the app starts do not have the descriptors.
    #
    # @param environment [Hash, ENV]
    # @return [SharedQueue] the one that was inherited, or a new one
    def self.take_over(environment = ENV)
      text = environment.delete(VARIABLE)
      new(text ? inherited(text) : Dispatch.new)
    end

    # Lets go of the one that was inherited, where connections are not shared any longer.
    #
    # @param environment [Hash, ENV]
    # @return [nil]
    def self.decline(environment = ENV)
      text = environment.delete(VARIABLE)
      opened(text).each(&:close) if text
      nil
    rescue SystemCallError, ArgumentError
      # Then there is nothing to let go of.
      nil
    end

    # The descriptors belong to Ruby from here on, and the Dispatch has copies.
    def self.inherited(text)
      files = opened(text)
      Dispatch.from_fds(files.map(&:fileno))
    rescue SystemCallError, ArgumentError, TypeError, IOError => e
      Log.line("#{VARIABLE} is of no use (#{e.message}): connections are not taken over")
      Dispatch.new
    ensure
      files&.each(&:close)
    end

    def self.opened(text)
      text.split(",").map { |number| IO.for_fd(Integer(number, 10)) }
    end
    private_class_method :inherited, :opened

    # @return [Dispatch] for the engine
    attr_reader :dispatch

    # @param dispatch [Dispatch]
    def initialize(dispatch)
      @dispatch = dispatch
    end

    # @return [Array<Integer>]
    def descriptors
      @dispatch.fds
    end

    # @return [String] the variable's value
    def description
      descriptors.join(",")
    end

    # Whatever a worker has said of itself does not count when it is dead.
    #
    # @param pid [Integer]
    def forget(pid)
      @dispatch.forget(pid)
    end

    # The workers are about to end, and get no successors: connections that nobody else takes are not to wait for any.
    def end
      @dispatch.end
    end

    def close
      @dispatch.close
    end
  end
end
