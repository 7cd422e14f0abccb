# frozen_string_literal: true

module Soak
  # The answers and failures of the clients, and the acts on the server that excuse a failure.
  class Record
    # Something that a client did not get: of which kind, since when it had its connection, and when it asked and gave up.
    Failure = Struct.new(:client, :kind, :connected, :asked, :failed, :text)

    # A time in which failures of some kinds are the fault of what was done.
    Excuse = Struct.new(:what, :kinds, :from, :to) do
      # A connection that breaks may have been lost at any time since it was made.
      def covers?(failure)
        since = %i[unanswered cut].include?(failure.kind) ? failure.connected : failure.asked
        kinds.include?(failure.kind) && since <= (to || Float::INFINITY) && failure.failed >= from
      end
    end

    # @return [Hash{String => Integer}] requests that were answered as they should be, by client
    attr_reader :answered
    # @return [Hash{String => Integer}] what was done to the server, and how often
    attr_reader :done
    # @return [Array<String>] faults besides failed requests
    attr_reader :findings

    def initialize
      @lock = Mutex.new
      @began = Bench.now
      @answered = Hash.new(0)
      @done = Hash.new(0)
      @failures = []
      @excuses = []
      @findings = []
    end

    def answer(client)
      @lock.synchronize { @answered[client] += 1 }
    end

    def failure(*fields)
      failure = Failure.new(*fields)
      @lock.synchronize { @failures << failure }
    end

    # @param what [String] the act in the block
    # @param kinds [Array<Symbol>] of failures that may come of it
    def act(what, *kinds)
      note(what)
      excuse = Excuse.new(what, kinds, Bench.now)
      @lock.synchronize do
        @done[what] += 1
        @excuses << excuse
      end
      yield
    ensure
      excuse&.to = Bench.now
    end

    # The machine itself stood still for that time.
    def stall(from, to)
      @lock.synchronize { @excuses << Excuse.new("a machine that stood still", %i[late 504 408], from, to) }
    end

    def finding(text)
      @lock.synchronize { @findings << format("%.1f s: %s", since(Bench.now), text) }
      note("FOUND: #{text}")
    end

    # @return [Array<Array(Failure, Excuse)>] those that an act excuses
    def excused
      judged.select(&:last)
    end

    # @return [Array<String>] those that nothing excuses
    def unexcused
      judged.reject(&:last).map do |failure, _|
        format("%.1f s: %s (asked at %.1f s, connected at %.1f s): %s %s", since(failure.failed), failure.client,
               since(failure.asked), since(failure.connected), failure.kind, failure.text)
      end
    end

    def note(text)
      $stdout.puts(format("%8.1f s: %s", since(Bench.now), text))
      $stdout.flush
    end

    private

    def judged
      @lock.synchronize do
        @failures.map { |failure| [failure, @excuses.find { |excuse| excuse.covers?(failure) } || too_slow_for_a_stop(failure)] }
      end
    end

    # A client that reads for longer than GracefulTimeout, as on a busy machine, is cut when its worker is told to stop.
    def too_slow_for_a_stop(failure)
      return unless failure.kind == :cut && failure.failed - failure.asked >= Site::GRACEFUL_TIMEOUT

      @excuses.reverse.find { |act| act.from.between?(failure.asked - 1, failure.failed - Site::GRACEFUL_TIMEOUT + 1) }
    end

    def since(time)
      time - @began
    end
  end
end
