# frozen_string_literal: true

require_relative "../log"

module Fastrack
  # The threads of a worker that answer requests beside its main thread (MaxThreads).
  class WorkerThreads
    # @param engine [Engine]
    # @param app [#call]
    # @param hook [#call] calls a hook by its word
    def initialize(engine, app, hook)
      @engine = engine
      @app = app
      @hook = hook
      @pid = Process.pid
      @threads = {}
      @ending = false
      @left = {}.compare_by_identity
    end

    # @param count [Integer] the main thread included
    def start(count) = (2..count).each { |number| start_one(number) }

    # Raises in the main thread what ends this process, and was raised in another one.
    def check
      exit, @exit = @exit, nil
      raise exit if exit
    end

    # Waits for the threads, which have no requests any more. Those that sleep on are killed: the app may have closed the
    # descriptors that wake them. What they do after that has no limit here.
    #
    # @param seconds [Numeric] for all of them to wake up
    def stop(seconds)
      @ending = true
      @engine.dismiss_threads
      ends = now + seconds
      @threads.each_value { |thread| thread.join([ends - now, 0].max) }
      @threads.each_value { |thread| thread.kill unless @left.key?(thread) }
      @threads.each_value(&:join)
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # A thread that the app ends is replaced. Not in a process that the app forks, nor when this one ends.
    def start_one(number)
      @threads[number] = Thread.new do
        Thread.current.name = "fastrack thread #{number}"
        Thread.current.report_on_exception = false
        serve
      ensure
        @left.delete(Thread.current)
        start_one(number) unless @ending || Process.pid != @pid
      end
    end

    def serve
      @hook.call(:on_thread_start)
      begin
        @engine.serve(@app)
      ensure
        @left[Thread.current] = true
        @hook.call(:on_thread_exit) if Process.pid == @pid
      end
    rescue SystemExit, SignalException => e
      raise unless Process.pid == @pid

      @exit ||= e
      # Has the main thread return between two requests.
      @engine.pause
    rescue Exception => e # rubocop:disable Lint/RescueException -- of the app's, by Thread#raise for example
      Log.exception("#{Thread.current.name} failed, and is replaced", e)
    end
  end
end
