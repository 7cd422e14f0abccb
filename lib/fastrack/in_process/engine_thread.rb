# frozen_string_literal: true

require_relative "../log"
require_relative "../worker/engine_settings"

module Fastrack
  class Server
    # What the engines of a server inside another process are created with.
    class InProcessSettings < EngineSettings
      # @param server [Server]
      # @param errors [#write] rack.errors
      # @param multithread [Boolean] whether the app serves several requests at a time
      def initialize(server, errors:, multithread:)
        super(server, nil, gc_interval: 1)
        @env = {
          "rack.errors" => errors, "rack.multithread" => multithread, "rack.multiprocess" => false,
          # The end of a request that takes too long is that of its process.
          "fastrack.timeout" => ->(_seconds) {}
        }.freeze
      end

      private

      def listeners
        super.map { |listener| { **listener, env: { **listener[:env], **@env }.freeze } }
      end
    end

    # An engine, and the thread that runs it.
    class EngineThread
      # @return [Thread]
      attr_reader :thread

      # @param settings [InProcessSettings] its own
      # @param app [#call]
      # @param name [String] the thread's
      def initialize(settings, app, name)
        @pid = Process.pid
        # Its end of file would end the engine; a byte wakes it.
        reader, @waker = IO.pipe
        @engine = settings.engine(slot: nil, master_fd: reader.fileno)
        @thread = Thread.new { serve(app) }
        @thread.name = name
      ensure
        reader&.close
        @waker&.close unless @thread
      end

      # @return [Array<#close>] what a forked child has to let go of
      def descriptors = [@engine, @waker]

      # Has the thread end when the requests that have begun are answered.
      def stop
        @engine.drain
        @engine.stop
        # It may have been stopped before, by a thread that was interrupted.
        @waker.write_nonblock(".", exception: false) unless @waker.closed?
      end

      # Ends the thread in the middle of a request.
      def kill = @thread.kill

      # @return [Boolean] whether everything is closed: not while the thread runs
      def release
        return false if @thread.alive? || !@engine.release

        @waker.close
        true
      end

      private

      # An `exit` in a request would end a worker, and another takes its place.
      def serve(app)
        @engine.run(app, 0)
      rescue SystemExit, SignalException => e
        # In a child that a request has forked this thread is the main one.
        raise unless Process.pid == @pid

        Log.line("#{Error.reason(e)} in a request, at #{e.backtrace&.first}: ignored in a server inside another process")
        retry
      rescue Exception => e # rubocop:disable Lint/RescueException -- whoever joins the thread has nothing to do with it
        Log.exception("a thread of a server inside another process failed", e)
      end
    end
  end
end
