# frozen_string_literal: true

require_relative "../log"

module Fastrack
  # The threads of a worker that answer requests beside the main thread (MaxThreads).
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

    # @param count [Integer] requests at a time
    # @param main [Boolean] whether the main thread is one of the threads: without streams
    def start(count, main:)
      (main ? 2 : 1).upto(count) { |number| start_one(number) }
      @engine.start_threads_by(method(:start_another)) unless main
    end

    # Raises in the main thread an exception of another thread that ends the process.
    def check
      exit, @exit = @exit, nil
      raise exit if exit
    end

    # Waits for the threads, which have no requests any more. Threads that do not wake up are killed, because the app may have closed the
    # descriptors that wake them. The hooks of a thread have no limit here.
    #
    # @param seconds [Numeric] for all threads to wake up
    def stop(seconds)
      @ending = true
      @engine.dismiss_threads
      ends = now + seconds
      threads = @threads.values
      threads.each { |thread| thread.join([ends - now, 0].max) }
      threads.each { |thread| thread.kill unless @left.key?(thread) }
      threads.each(&:join)
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # Starts a thread in place of one that has a stream.
    #
    # @return [Boolean] false: there can be no more threads now
    def start_another
      return false if @ending || Process.pid != @pid

      start_one((1..).find { |number| !@threads.key?(number) })
      true
    rescue ThreadError => e
      Log.repeated([:no_thread, e.message]) { "no thread can be started beside #{Log.count(@threads.size, "thread")} with requests and streams: #{e.message}" }
      false
    end

    # Starts a thread. A thread that the app ends is replaced, except in a forked process and at the end of this process. A thread that has
    # returned from the engine is not needed any more.
    def start_one(number)
      @threads[number] = Thread.new do
        is_over = false
        Thread.current.name = "fastrack thread #{number}"
        Thread.current.report_on_exception = false
        is_over = serve
      ensure
        @left.delete(Thread.current)
        unless @ending || Process.pid != @pid
          is_over ? @threads.delete(number) : start_one(number)
        end
      end
    end

    # @return [Boolean] whether the engine needs the thread no more
    def serve
      @hook.call(:on_thread_start)
      begin
        @engine.serve(@app)
        true
      ensure
        @left[Thread.current] = true
        @hook.call(:on_thread_exit) if Process.pid == @pid
      end
    rescue SystemExit, SignalException => e
      raise unless Process.pid == @pid

      @exit ||= e
      # Makes the main thread return between two requests.
      @engine.pause
      false
    rescue Exception => e # rubocop:disable Lint/RescueException -- of the app's, by Thread#raise for example
      Log.exception("#{Thread.current.name} failed, and is replaced", e)
      false
    end
  end

  # The backtraces of all threads, for the log when a request takes too long (crates/engine/src/ending/mod.rs). The text is made in a
  # signal handler.
  module ThreadDump
    # Frames of the server itself.
    OWN = ["#{__dir__}.rb:", *%w[engine_builder linger threads].map { |file| "#{__dir__}/#{file}.rb:" }].map(&:b).freeze

    # Frames of the master, below the fork.
    MASTER = "#{File.expand_path("../master", __dir__)}/".b.freeze

    # Frames in which a thread answers requests, or waits for one.
    ENGINE = /in [`'](?:Fastrack::Engine#)?(?:run|serve)'\z/.freeze

    module_function

    # @return [String] the main thread first; valid UTF-8 with any paths and names
    def text
      threads = Thread.list
      main = Thread.main
      [main, *(threads - [main])].map { |thread| describe(thread) }.join.force_encoding(Encoding::UTF_8).scrub
    end

    # Describes a thread, without the server's frames below the app and the signal handler's frames above.
    def describe(thread)
      # A thread that has just ended has no backtrace.
      all = (thread.backtrace || []).map(&:b)
      frames = all.drop_while { |frame| (own?(frame) && !frame.match?(ENGINE)) || frame.include?("backtrace'") }
      frames = frames.take_while { |frame| !own?(frame) && !frame.start_with?(MASTER) }
      name = thread == Thread.main ? "the main thread" : "a thread#{" (#{thread.name})" if thread.name}".b
      idle = " idle, it waits for a request" if frames.empty? && all.any? { |frame| own?(frame) && frame.match?(ENGINE) }
      ["  #{name}:#{idle}\n", *frames.map { |frame| "    #{frame}\n" }].join
    end

    def own?(frame) = frame.start_with?(*OWN)
    private_class_method :describe, :own?
  end
end
