# frozen_string_literal: true

require_relative "../log"
require_relative "process_setup"

module Fastrack
  # The kinds of shutdown, the slower ones first. The master creates one, and calls #step at `due_at` until no worker is left. A faster kind
  # may replace a slower one. Times are monotonic seconds.
  class Shutdown
    # @param kind [Class]
    # @return [Boolean] whether `kind` is faster than this kind
    def slower_than?(kind) = KINDS.index(self.class) < KINDS.index(kind)

    # @return [Float, nil] when #step has to be called
    attr_reader :due_at

    # @param workers [Workers]
    # @param launcher [Launcher]
    # @param now [Float]
    def initialize(workers, launcher, now)
      @workers = workers
      @launcher = launcher
      start(now)
    end

    # @return [String, nil] line for the log
    def text; end

    # @param now [Float]
    def step(now)
      proceed(now) unless @due_at.nil? || now < @due_at
    end

    private

    def configuration = @launcher.configuration

    # New clients are refused rather than kept waiting. Workers have copies of the listeners.
    def refuse_clients
      @launcher.queue&.drain
      @launcher.open_listeners.each(&:close)
    end

    # After TERM: for DrainDelay, workers serve on and close connections after each response. A Graceful shutdown follows.
    class Drain < Shutdown
      def start(now)
        @due_at = now + configuration.drain_delay
        @workers.lingering.leave_sockets
        @workers.each(&:drain)
      end

      # Puts the end off, because the proxy still serves.
      #
      # @param time [Float]
      def postpone(time) = @due_at = time

      def text
        "serving on for #{format("%g", configuration.drain_delay)} s (DrainDelay)" if configuration.drain_delay.positive?
      end
    end

    # After QUIT: workers serve on until the proxy has finished its requests. A Graceful shutdown follows.
    class ProxyFirst < Drain
      # The proxy puts the end off.
      def start(now) = @due_at = now

      def text; end
    end

    # Workers stop one by one, SpawnInterval apart, while another server takes over.
    class Phased < Shutdown
      def start(now)
        @launcher.queue&.drain
        @workers.all_but_first.each { |handle| handle.stop if handle.mold? }
        @workers.lingering.stop(now)
        @interval = configuration.spawn_interval
        @due_at = now
      end

      def proceed(now)
        @workers.staying.first&.stop
        @due_at = @workers.staying.empty? ? nil : now + @interval
      end

      def text = "stopping one worker every #{format("%g", @interval)} s (SpawnInterval)"
    end

    # Workers finish their requests. Workers that still run after GracefulTimeout are killed.
    class Graceful < Shutdown
      # Seconds that workers get in any case, where GracefulTimeout is longer: the proxy may have taken all of it.
      LEAST_TIME = 1

      def start(now)
        refuse_clients
        @timeout = configuration.graceful_timeout
        @left = [@timeout - (@launcher.proxy&.time_taken(now) || 0), [LEAST_TIME, @timeout].min].max
        @due_at = now + @left
        @workers.lingering.stop(@due_at - @timeout)
        @workers.all_but_first.each(&:stop)
      end

      def proceed(now)
        @workers.all_but_first.each do |handle|
          # A worker without a request only waits for slow clients.
          request = handle.request(now)
          Log.line("#{handle.name} has not finished within #{format("%g", @timeout)} s: killing it" \
                   "; it is serving #{request || "no request"}")
          handle.kill("GracefulTimeout")
        end
        # CHLD comes when the workers have exited.
        @due_at = nil
      end

      def text = "stopping, requests have up to #{format("%g", @left.round(1))} s (GracefulTimeout)"
    end

    # Workers are killed at once.
    class Quick < Shutdown
      def start(_now)
        refuse_clients
        @workers.all_but_first.each { |handle| handle.kill("quick shutdown") }
      end

      def text = "stopping at once, the workers are killed"
    end

    KINDS = [Drain, ProxyFirst, Phased, Graceful, Quick].freeze
    private_constant :KINDS
  end

  # INT in development while workers have requests. A terminal sends INT to all of its processes. A debugger in a worker (`debugger`,
  # `binding.irb`) takes INT at its prompt to clear the line. Such an INT is not for the server.
  class DeveloperInterrupt
    # Seconds until workers are asked: a debugger gets them to return to its prompt. The shorter time counts if no prompt was there when INT
    # came.
    PROMPT_TIME = 0.5
    SHORT_PROMPT_TIME = 0.3

    # Seconds that workers get to answer. A worker that does not answer is in no debugger, but hangs in native code.
    ANSWER_TIME = 3

    # @return [Float, nil] monotonic seconds when #step has something to do
    attr_reader :due_at

    # @param workers [Workers]
    # @param ends [#call] ends the server
    def initialize(workers, ends)
      @workers = workers
      @ends = ends
      @asked = nil
    end

    # @param now [Float] monotonic seconds
    def begin(now)
      return if @due_at

      @edited = ProcessSetup.line_edited?
      @due_at = now + (@edited ? PROMPT_TIME : SHORT_PROMPT_TIME)
    end

    # @param now [Float] monotonic seconds
    def step(now)
      return if @due_at.nil?
      return (ask(now) if now >= @due_at) unless @asked

      answers = @asked.map(&:interrupt_taken)
      # A library may keep its handler for INT after its prompt, so the terminal's mode also counts. A worker that was at a prompt may have
      # finished its request.
      taken = answers.include?(true) ? @edited || ProcessSetup.line_edited? : answers.empty? && @edited
      return unless taken || answers.none?(&:nil?) || now >= @due_at

      @due_at = @asked = nil
      @ends.call unless taken
    end

    private

    def ask(now)
      @asked = @workers.each.select(&:busy?).each(&:ask_for_interrupt)
      @due_at = now + ANSWER_TIME
      step(now)
    end
  end
end
