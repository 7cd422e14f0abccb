# frozen_string_literal: true

module Fastrack
  # What has come of the last orders to start processes: HUP, USR2 and URG. The monitor tells it, and `fastrack restart` and the like wait
  # for it.
  class Orders
    SIGNALS = %w[HUP USR2 URG].freeze

    # They are kept for clients that wait: few do at one time.
    KEPT = 16

    # @attr number [Integer] orders of this master up to this one
    # @attr signal [String]
    # @attr state [String] begun, done or failed
    # @attr reason [String, nil] why it has failed
    # @attr pid [Integer, nil] of the new master
    Order = Struct.new(:number, :signal, :state, :reason, :pid)

    # @yield when one has begun, before that goes on: clients that give an order meanwhile are not to take this one for theirs
    def initialize(&begun)
      @begun = begun
      @orders = []
      @count = 0
    end

    # @return [Array<Array>] the last ones, as Monitor#publish takes them
    def to_a = @orders.map(&:to_a)

    # @param signal [String]
    def begin(signal)
      @orders.shift if @orders.size == KEPT
      @orders << Order.new(@count += 1, signal, "begun")
      @begun.call
    end

    # @param signal [String]
    # @param pid [Integer] of the new master that the last order of this kind has started
    def started(signal, pid)
      open(signal).last&.pid = pid
    end

    # All orders of this kind that have begun are done.
    #
    # @param signal [String]
    def done(signal) = finish(open(signal), "done")

    # They have failed, or come to nothing.
    #
    # @param signal [String]
    # @param reason [String]
    def failed(signal, reason) = finish(open(signal), "failed", reason)

    # The last one has come to nothing; others of its kind go on.
    #
    # @param signal [String]
    # @param reason [String]
    def refused(signal, reason) = finish(open(signal).last(1), "failed", reason)

    private

    def open(signal) = @orders.select { |order| order.signal == signal && order.state == "begun" }

    def finish(orders, state, reason = nil)
      orders.each { |order| order.state, order.reason = state, reason }
    end
  end
end
