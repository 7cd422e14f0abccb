# frozen_string_literal: true

require_relative "../error"
require_relative "../native"
require_relative "engine_thread"
require_relative "fork_guard"
require_relative "settings"

module Fastrack
  # A server in threads of this process, for tests and tools. It forks nothing, takes no signals, prints nothing, and leaves the
  # process's title alone.
  #
  #     server = Fastrack::Server.new(app).start
  #     Net::HTTP.get(URI("#{server.url}/"))
  #     server.stop
  #
  # Each object starts once. A process may have several, and may fork: its children have none.
  class Server
    # Requests that are served at a time, unless told otherwise: an app may call itself, and a browser opens six connections.
    THREADS = 4

    # @return [Settings]
    attr_reader :configuration
    # @return [Array<Listener>]
    attr_reader :listeners
    # @return [SharedQueue, nil] of the engines
    attr_reader :queue

    # @param app [#call] a Rack app
    # @param threads [Integer] requests at a time, also as `max_threads` or `MaxThreads`; with 1 the app need not be thread-safe,
    #   and must not call itself
    # @param log [#puts, nil] gets a line when the server starts and when it stops
    # @param errors [#write] rack.errors
    # @param options see Settings
    # @raise [ConfigurationError]
    def initialize(app, threads: nil, log: nil, errors: $stderr, **options)
      raise ConfigurationError, "the app does not respond to call: #{app.inspect[0, 200]}" unless app.respond_to?(:call)

      @app = app
      threads = [threads, *%i[max_threads MaxThreads].map { |name| options.delete(name) }, THREADS].compact.first
      @threads = Option::Types.integer(threads, 1..512)
      @log = log
      @errors = errors
      @configuration = Settings.new(options)
      @lock = Mutex.new
      @listeners = []
      @engines = []
    rescue ArgumentError => e
      raise ConfigurationError, "threads #{e.message}; got #{threads.inspect}"
    end

    # Returns when it listens.
    #
    # @return [Server] self
    # @raise [ListenError]
    def start
      @lock.synchronize do
        raise Error, "a server starts once; make a new one" if @pid

        @pid = Process.pid
        open_all
      end
      @log&.puts("Fastrack #{VERSION} is listening on #{addresses.join(", ")}")
      self
    end

    # Starts, and returns when another thread has stopped it.
    #
    # @return [Server] self
    def run
      start unless @pid
      @engines.each { |engine| engine.thread.join }
      self
    end

    # Answers the requests that have begun, and closes all connections and listeners. Afterwards nothing of it is left.
    #
    # @param within [Numeric] seconds for open requests; then their threads are ended, and their clients cut off
    # @return [Boolean] whether no request was cut off; nil for a server that does not run in this process
    # @raise [Error] in a request of its own
    def stop(within: @configuration.graceful_timeout)
      return unless running?
      raise Error, "a request cannot wait for its server's end: call stop on another thread" if own_thread?

      in_order = @lock.synchronize { running? ? close_all(within) : return }
      @log&.puts("Fastrack has stopped listening on #{addresses.join(", ")}")
      in_order
    end

    # @return [Boolean] false also in a forked child
    def running? = @engines.any? && @pid == Process.pid

    # @return [Integer, nil] nil if it listens on unix sockets only
    def port = @listeners.find(&:tcp?)&.server_port&.to_i

    # @return [Array<String>] "127.0.0.1:34567", or the paths of unix sockets
    def addresses = @listeners.map { |listener| listener.unix_path || listener.to_s }.uniq

    # @return [String, nil] "http://127.0.0.1:34567"
    def url
      listener = @listeners.find(&:tcp?) or return
      host = { "0.0.0.0" => "127.0.0.1", "[::]" => "[::1]" }.fetch(listener.server_name, listener.server_name)
      "http://#{host}:#{listener.server_port}"
    end

    # @!visibility private
    # @return [Array<#close>] what a forked child has to let go of
    def descriptors = [*@engines.flat_map(&:descriptors), *@listeners, *@queue]

    # @!visibility private
    # What EngineSettings asks a Launcher.
    def former_listeners = []

    # @!visibility private
    # @return [nil] it prints nothing
    def access_log; end

    # @!visibility private
    def supervised? = false

    private

    def open_all
      listen
      run_engines
    rescue StandardError
      close_all(0)
      raise
    end

    def listen
      @configuration.addresses.each { |address| @listeners.concat(address.open) }
      # A connection that is kept alive must not wait for the request that its thread is busy with.
      @queue = SharedQueue.new if @threads > 1 && @configuration.hand_over
      ForkGuard.add(self)
    end

    # The only place that knows how several requests are served at a time: each thread has an engine, and they share the
    # listeners as workers do.
    def run_engines
      @threads.times do |index|
        settings = InProcessSettings.new(self, errors: @errors, multithread: @threads > 1)
        # For a fork by another thread: it sees all engines or none.
        @engines += [EngineThread.new(settings, @app, "fastrack #{addresses.first} #{index}")]
      end
      # The engines have copies, and close them when they stop.
      @listeners.each(&:close)
    end

    def close_all(within)
      @queue&.drain
      @engines.each(&:stop)
      in_order = join(within)
      cut_off unless in_order
      @engines = @engines.reject(&:release)
      [*@listeners, *@queue].each(&:close)
      @listeners.each(&:remove_file)
      # A thread that is left hangs in native code: no child is to have its connection.
      ForkGuard.remove(self) if @engines.empty?
      in_order
    end

    # The threads get two seconds to end: only native code can keep them.
    def cut_off
      @engines.each(&:kill)
      join(2)
    end

    # @return [Boolean] whether all threads have ended
    def join(seconds)
      deadline = now + seconds
      @engines.all? { |engine| engine.thread.join([deadline - now, 0].max) }
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def own_thread? = @engines.any? { |engine| engine.thread == Thread.current }
  end
end
