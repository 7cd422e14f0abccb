# frozen_string_literal: true

require "tmpdir"
require_relative "../in_process/engine_thread"
require_relative "../listener/sockets"
require_relative "../rack/temporary_folder"
require_relative "../worker/engine_builder"

module Fastrack
  class WarmUp
    # An engine as a worker has it, for one client of this process. The app runs in a thread that ends with the warm-up, so that what a request
    # leaves in its thread (locale, time zone, leased connections) ends, too.
    class Server
      # Path that the system takes for a unix socket (unix(7)).
      LONGEST_FOLDER = 80

      # Seconds that the app's thread has to end once it is told to, and once it is killed.
      TIME_TO_END = 1

      # Builds the engine. No request has a time limit of its own: its end would be that of the process.
      class Builder < EngineBuilder
        UNLIMITED = { request_timeout: 0.0, worker_timeout: 0.0, max_queue_time: 0.0, stream_timeout: 0.0, threads: 1, streams: 0, keep_alive: false }.freeze

        private

        def settings = { **super, **UNLIMITED }

        def after_response = nil

        def listeners
          added = { "fastrack.warm_up" => true, "fastrack.timeout" => ->(_seconds) {} }
          super.map { |listener| { **listener, env: listener[:env].merge(added).freeze } }
        end
      end

      # What EngineBuilder asks a Launcher for.
      Place = Struct.new(:configuration, :listeners) do
        def former_listeners = []
        def queue = nil
        def access_log = nil
        def supervised? = false
      end
      private_constant :Place

      # @return [String] path of the socket
      attr_reader :path

      # @param configuration [Configuration]
      # @param app [#call]
      # @raise [SystemCallError, ListenError]
      def initialize(configuration, app)
        @folder = Dir.mktmpdir("fastrack", folder)
        @path = File.join(@folder, "s")
        listener = UNIXListener.open(@path, backlog: 16, mode: 0o600)
        # The client says who it is, as the proxy does.
        listener.role = :inner
        # The thread's objects are to be in the heap that workers use.
        Fastrack.share_malloc_arena
        @engine = EngineThread.new(Builder.new(Place.new(configuration, [listener]), nil, gc_interval: 1), app, "fastrack warm-up", "in the warm-up")
      rescue StandardError
        remove_folder
        raise
      ensure
        listener&.close
      end

      # @return [Array<#close>] objects that a forked child has to close; none after the end
      def descriptors = @engine ? @engine.descriptors : []

      # @return [Boolean] whether the app's thread has ended; one that hangs in native code goes on
      def stop
        @engine.stop
        @engine.kill unless @engine.thread.join(TIME_TO_END)
        @engine = nil if @engine.thread.join(TIME_TO_END) && @engine.release
        remove_folder
        @engine.nil?
      end

      private

      def folder = [TemporaryFolder.path, *TemporaryFolder::COMMON].find { |path| path.bytesize <= LONGEST_FOLDER }

      def remove_folder
        File.unlink(@path) if @path && File.exist?(@path)
        Dir.rmdir(@folder) if @folder
      rescue SystemCallError
        nil
      end
    end
  end
end
