# frozen_string_literal: true

require_relative "../log"
require_relative "child"
require_relative "settings"

module Fastrack
  module Proxy
    # Starts, watches and stops the proxy for the master.
    class Supervisor
      # Seconds between two starts, if the first proxy has ended at once.
      START_INTERVAL = 0.5

      # Seconds between two looks at a proxy that is to end.
      CHECK_INTERVAL = 0.02

      # Seconds that the process gets to end itself after GracefulTimeout.
      TIME_TO_END = 1

      # @return [Float, nil] monotonic seconds when #step has something to do
      attr_reader :due_at

      # @param launcher [Launcher]
      def initialize(launcher)
        @launcher = launcher
        @ending = []
      end

      # Starts the proxy if the configuration asks for one.
      #
      # @raise [Error] when it does not start
      def start
        return unless configuration.proxy?

        settings = current_settings
        @started_at = now
        @child = Child.new(settings, Proxy.user(configuration)) if settings.listeners.any?
      end

      # @return [Array<IO>] what the master waits for
      def readers = [@child, *@ending].compact.map(&:output).reject(&:closed?)

      # @return [Array<IO>] descriptors that forked processes must not keep
      def descriptors = [@child, *@ending].compact.flat_map(&:descriptors)

      # @return [String, nil] the proxy's counters, in JSON
      def stats = @child&.stats

      # @return [Integer, nil]
      def pid = @child&.pid

      # Called after a HUP: a running proxy gets new settings; a new one takes over if there are other listeners.
      def reload
        return start_again unless @child

        settings = current_settings
        return @child.tell(settings.to_line) if configuration.proxy? && settings.fixed == @child.settings.fixed

        old = @child
        @child = nil
        start
        end_later(old)
      rescue Error => e
        @child ||= old
        Log.line("the old proxy serves on: #{e.message}", :error)
      end

      # Called once the master has reopened its log files.
      def reopen_logs = [@child, *@ending].compact.each(&:reopen_logs)

      # @param now [Float] monotonic seconds
      # @return [Float] seconds that the end of the proxy has taken of GracefulTimeout
      def time_taken(now) = @stop_at ? now - @stop_at : 0.0

      # Reads what the proxy says, and starts another one in the place of one that has ended.
      #
      # @param now [Float] monotonic seconds
      def step(now)
        [@child, *@ending].compact.each(&:read)
        @ending.reject! { |child| child.ended? && child.close }
        @ending.each { |child| child.signal(:KILL) } if @kill_at&.<=(now)
        replace(now) if @child&.ended?
        start_again if @again_at&.<=(now)
        @due_at = [@again_at, (now + CHECK_INTERVAL if @ending.any?)].compact.min
      end

      # Ends the proxy before the workers, which serve until the proxy has finished its requests: meanwhile a graceful shutdown drains.
      #
      # @param kind [Class] of the shutdown that is to begin
      # @param shutdown [Shutdown, nil] the present one
      # @return [Class] the kind of shutdown that can begin now
      def before_shutdown(kind, shutdown)
        return kind if kind == Shutdown::Drain || !stop
        return kind.tap { @ending.each { |child| child.signal(:KILL) } } if kind == Shutdown::Quick
        return kind unless kind == Shutdown::Graceful

        shutdown.postpone(@due_at) if shutdown.is_a?(Shutdown::Drain)
        Shutdown::Drain
      end

      # Called at the end of the master. A proxy that still runs reads the end of file, and ends.
      def close = descriptors.each(&:close)

      private

      # Has the proxy finish its requests and accept no others.
      #
      # @return [Boolean] whether a proxy still runs
      def stop
        @again_at = nil
        @stop_at ||= now
        end_later(@child) if @child
        @child = nil
        # New clients are refused rather than kept waiting.
        @launcher.listeners.each { |listener| listener.close if listener.role == :edge }
        @ending.reject! { |child| child.ended? && child.close }
        @due_at = now + CHECK_INTERVAL
        @ending.any?
      end

      def configuration = @launcher.configuration

      def current_settings = Settings.new(configuration, @launcher.listeners, @launcher.access_log)

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      def end_later(child)
        child.stop
        @ending << child
        @kill_at = now + configuration.graceful_timeout + TIME_TO_END
        @due_at = now + CHECK_INTERVAL
      end

      def replace(now)
        Log.line("the proxy (pid #{@child.pid}) #{@child.ending}: starting another one", :error)
        @child.close
        @child = nil
        @again_at = [now, @started_at + START_INTERVAL].max
      end

      def start_again
        @again_at = nil
        start
      rescue Error => e
        Log.line("#{e.message}; trying again", :error)
        @again_at = now + START_INTERVAL
      end
    end
  end
end
