# frozen_string_literal: true

require_relative "../configuration/options"
require_relative "../error"
require_relative "../listener/address"
require_relative "../log"
require_relative "../native"
require_relative "../process/guards"
require_relative "../worker/engine_builder"
require_relative "engine_thread"

module Fastrack
  module ForkGuard
    # Guards servers inside this process, which may be anything else besides.
    module Servers
      # @param server [#descriptors]
      def add(server)
        # Another thread may fork at any moment, so the Array is replaced and never changed.
        @servers = [*@servers, server]
        Process.singleton_class.prepend(ForkGuard) unless Process.singleton_class < ForkGuard
      end

      # @param server [#descriptors]
      def remove(server)
        @servers = @servers.reject { |one| one.equal?(server) }
      end

      def uninstall
        super
        @servers = []
      end

      private

      def descriptors
        super + (@servers || []).flat_map(&:descriptors)
      end
    end

    singleton_class.prepend(Servers)
  end

  # A server in threads of this process, for tests and tools. The server forks nothing, handles no signals, prints nothing, and does not set
  # the process's title.
  #
  #     server = Fastrack::Server.new(app).start
  #     Net::HTTP.get(URI("#{server.url}/"))
  #     server.stop
  #
  # Each object starts once. A process may have several servers, and may fork: children have none.
  class Server
    # Options of a server inside another process: those for clients, by name (`KeepAlive`) or by word (`keep_alive`). Neither a ConfigFile
    # nor the environment is read, because both belong to the server under test.
    class Options
      OPTIONS = %i[
        Host Port Path Listen BackLog ReusePort ClientTimeout HeaderTimeout BodyTimeout WriteTimeout KeepAlive KeepAliveTimeout
        KeepAliveRequests MaxBodySize MaxRequestTarget MaxHeaderSize MaxHeaderFields StreamBody ResponseBuffer
        MaxResponseSpool ChunkedTransfer PathInfo EarlyHints LowlevelErrorHandler HandOver GracefulTimeout
      ].map { |name| Option::BY_NAME.fetch(name) }.freeze

      # Only clients on this machine, at any free port. No timeout ends the process.
      DEFAULTS = { Host: "127.0.0.1", Port: 0, RequestTimeout: 0.0, WorkerTimeout: 0.0 }.freeze

      include Option::Readers

      # @param given [Hash{Symbol => Object}]
      # @raise [ConfigurationError]
      def initialize(given)
        chosen = given.reject { |_, value| value.nil? }.to_h do |key, value|
          option = find(key)
          [option.name, option.coerce(value, "option #{key}")]
        end
        @values = Option::DEFAULTS.merge(DEFAULTS, chosen).freeze
      end

      # @return [nil] no puma.rb is read
      def puma; end

      # @return [false] Rhebok's users do not start this server
      def rhebok? = false

      private

      def find(key)
        option = Option.find(key)
        return option if OPTIONS.include?(option)
        raise ConfigurationError, "option #{key} is for a server of its own, and has no effect inside another process" if option

        raise ConfigurationError, "unknown option #{key}#{Error.suggestion(key, OPTIONS.flat_map { |one| [one.name, one.word] })}"
      end
    end

    # Builds the engines of a server inside another process.
    class InProcessEngineBuilder < EngineBuilder
      # @param server [Server]
      # @param errors [#write] rack.errors
      # @param multithread [Boolean] whether the app serves several requests at a time
      def initialize(server, errors:, multithread:)
        super(server, nil, gc_interval: 1)
        @env = {
          "rack.errors" => errors, "rack.multithread" => multithread, "rack.multiprocess" => false,
          # Does nothing, because a request that takes too long would end the process.
          "fastrack.timeout" => ->(_seconds) {}
        }.freeze
      end

      private

      def listeners
        super.map { |listener| { **listener, env: { **listener[:env], **@env }.freeze } }
      end
    end

    # Default number of requests served at a time: an app may call itself, and a browser opens six connections.
    THREADS = 4

    # @return [Options]
    attr_reader :configuration
    # @return [Array<Listener>]
    attr_reader :listeners
    # @return [SharedQueue, nil] queue of the engines
    attr_reader :queue

    # @param app [#call] a Rack app
    # @param threads [Integer] requests at a time, also as `max_threads` or `MaxThreads`; with 1 the app need not be thread-safe,
    #   and must not call itself
    # @param log [#puts, nil] gets a line when the server starts and when it stops
    # @param errors [#write] rack.errors
    # @param options see Options
    # @raise [ConfigurationError]
    def initialize(app, threads: nil, log: nil, errors: $stderr, **options)
      raise ConfigurationError, "the app does not respond to call: #{app.inspect[0, 200]}" unless app.respond_to?(:call)

      @app = app
      threads = [threads, *%i[max_threads MaxThreads].map { |name| options.delete(name) }, THREADS].compact.first
      @threads = Option::Types.integer(threads, 1..512)
      @log = log
      @errors = errors
      @configuration = Options.new(options)
      @lock = Mutex.new
      @listeners = []
      @engines = []
    rescue ArgumentError => e
      raise ConfigurationError, "threads #{e.message}; got #{threads.inspect}"
    end

    # Starts the server. Returns when the server listens.
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

    # Starts the server, and returns when another thread has stopped it.
    #
    # @return [Server] self
    def run
      start unless @pid
      @engines.each { |engine| engine.thread.join }
      self
    end

    # Answers the begun requests, and closes all connections and listeners.
    #
    # @param within [Numeric] seconds for open requests; then the threads are killed and the clients' connections closed
    # @return [Boolean] whether all begun requests were answered; nil for a server that does not run in this process
    # @raise [Error] when called in a request of the same server
    def stop(within: @configuration.graceful_timeout)
      return unless running?
      raise Error, "a request cannot wait for its server's end: call stop on another thread" if own_thread?

      in_order = @lock.synchronize { running? ? close_all(within) : return }
      @log&.puts("Fastrack has stopped listening on #{addresses.join(", ")}")
      in_order
    end

    # @return [Boolean] false also in a forked child
    def running? = @engines.any? && @pid == Process.pid

    # @return [Integer, nil] nil with unix sockets only
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
    # @return [Array<#close>] objects that a forked child has to close
    def descriptors = [*@engines.flat_map(&:descriptors), *@listeners, *@queue]

    # @!visibility private
    # For EngineBuilder, in place of a Launcher.
    def former_listeners = []

    # @!visibility private
    # @return [nil] the server has no access log
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
      # A kept-alive connection must not wait for the current request of its engine.
      @queue = SharedQueue.new if @threads > 1 && @configuration.hand_over
      ForkGuard.add(self)
    end

    # Starts a thread with an engine for each request at a time. The engines share the listeners as workers do.
    def run_engines
      @threads.times do |index|
        settings = InProcessEngineBuilder.new(self, errors: @errors, multithread: @threads > 1)
        # The Array is replaced, because another thread may fork at any moment.
        @engines += [EngineThread.new(settings, @app, "fastrack #{addresses.first} #{index}", "in a server inside another process")]
      end
      # The engines have copies of the listeners, and close the copies when they stop.
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
      # A remaining thread hangs in native code, and its connection must not leak into children.
      ForkGuard.remove(self) if @engines.empty?
      in_order
    end

    # Kills the threads, and waits two seconds. Only native code can delay a killed thread.
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
