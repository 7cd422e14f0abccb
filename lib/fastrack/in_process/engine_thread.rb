# frozen_string_literal: true

require_relative "../error"
require_relative "../log"

module Fastrack
  # An engine, and the thread that runs it.
  class EngineThread
    # @return [Thread]
    attr_reader :thread

    # @param settings [EngineBuilder] used for this engine only
    # @param app [#call]
    # @param name [String] name of the thread
    # @param place [String] for the log: "in a server inside another process"
    def initialize(settings, app, name, place)
      @place = place
      @pid = Process.pid
      # The engine's pipe to a master. A byte wakes the engine, and an end of file would end it.
      reader, @waker = IO.pipe
      @engine = settings.engine(slot: nil, master_fd: reader.fileno)
      @thread = Thread.new { serve(app) }
      @thread.name = name
    ensure
      reader&.close
      @waker&.close unless @thread
    end

    # @return [Array<#close>] objects that a forked child has to close
    def descriptors = [@engine, @waker]

    # Makes the thread end when the begun requests are answered.
    def stop
      @engine.drain
      @engine.stop
      # `@waker` is closed after an earlier stop by an interrupted thread.
      @waker.write_nonblock(".", exception: false) unless @waker.closed?
    end

    # Ends the thread in the middle of a request.
    def kill = @thread.kill

    # @return [Boolean] whether everything is closed; false while the thread runs
    def release
      return false if @thread.alive? || !@engine.release

      @waker.close
      true
    end

    private

    # Serves, and ignores `exit` in a request, which in a worker would end the process.
    def serve(app)
      @engine.run(app, 0)
    rescue SystemExit, SignalException => e
      # In a child that a request has forked this thread is the main thread.
      raise unless Process.pid == @pid

      Log.line("#{Error.reason(e)} in a request, at #{e.backtrace&.first}: ignored #{@place}")
      retry
    rescue Exception => e # rubocop:disable Lint/RescueException -- whoever joins the thread has nothing to do with it
      Log.exception("a thread #{@place} failed", e)
    end
  end
end
