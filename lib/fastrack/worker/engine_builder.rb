# frozen_string_literal: true

require_relative "../gc/oob_gc"
require_relative "../log"
require_relative "../rack/app_errors"
require_relative "../rack/input"
require_relative "../rack/temporary_folder"
require_relative "../version"
require_relative "memory_check"

module Fastrack
  # Builds a worker's engine from the configuration.
  class EngineBuilder
    # Readers of Configuration whose values the engine takes unchanged, by the engine's names.
    AS_CONFIGURED = {
      timeout: :client_timeout, chunked: :chunked_transfer, max_body: :max_body_size, max_target: :max_request_target,
      max_head: :max_header_size, max_fields: :max_header_fields,
      **%i[header_timeout body_timeout write_timeout request_timeout worker_timeout max_queue_time request_start timings server_timing log_slow keep_alive
           keep_alive_timeout keep_alive_requests response_buffer max_response_spool stream_body stream_timeout].to_h { |word| [word, word] }
    }.freeze

    # Loads files that only some configurations need. The master does this before it forks.
    #
    # @param configuration [Configuration]
    def self.load(configuration)
      require_relative "../gc/auto_gc" if configuration.oobgc == :auto
    end

    # @param launcher [Launcher]
    # @param gc_interval [Integer] see OobGC
    # @param channel [ControlChannel, nil] to the master; nil without one
    def initialize(launcher, channel, gc_interval:)
      @launcher = launcher
      @configuration = launcher.configuration
      @channel = channel
      @gc_interval = gc_interval
    end

    # @param slot [Array(Scoreboard, Integer), nil]
    # @param nr [Integer] the worker's number
    # @param master_fd [Integer] at end of file when the master is dead
    # @param memory_note [MemoryNote, nil]
    # @param orphan [Hash] orphan_time (seconds) and orphan_line: the end of a worker whose master is dead
    # @return [Engine]
    def engine(slot:, master_fd:, nr: 0, memory_note: nil, **orphan)
      @memory_note = memory_note
      @engine = Engine.new(listeners, { **settings, **orphan, slot: slot, master_fd: master_fd, nr: nr })
    end

    private

    def settings
      {
        **AS_CONFIGURED.transform_values { |word| @configuration.public_send(word) },
        idle_time_on_stop: close_delay,
        threads: @configuration.max_threads, streams: @configuration.max_streams,
        queue: @launcher.queue,
        access_log: @launcher.access_log&.fileno, access_log_format: @configuration.access_log_format,
        error_page: ErrorPage.for(@configuration.lowlevel_error_handler),
        decode_path: @configuration.path_info == "decoded",
        tmpdir: TemporaryFolder.path,
        listeners: known_listeners.map(&:identity),
        proxy_listener: known_listeners.index { |listener| listener.role == :inner },
        after_response: after_response
      }
    end

    def after_response
      calls = [out_of_band, @memory_note, memory_check, oob_gc].compact
      calls.size > 1 ? -> { calls.each(&:call) } : calls.first
    end

    def oob_gc
      choice = @configuration.oobgc or return
      EngineBuilder.load(@configuration)
      return AutoGC.new { @engine } if choice == :auto && AutoGC.possible?

      Log.line("OobGC=auto acts as OobGC=true: Ruby #{RUBY_VERSION} does not tell how full its heap is") if choice == :auto
      OobGC.start(@gc_interval, -> { @engine.waiting? }, others)
    end

    def memory_check
      limit = @configuration.max_memory_per_child or return
      MemoryCheck.new(limit, @channel, @memory_note) if ProcessMemory.known?
    end

    # The hook `out_of_band` of a puma.rb. As in Puma, the hook begins when no thread has a request, and one call runs at a time.
    def out_of_band
      hook = @configuration.puma&.out_of_band
      return hook if hook.nil? || !@configuration.multithread?

      busy = others
      running = Mutex.new
      lambda do
        next if busy.call

        # Thread#raise and Timeout must not leave it locked.
        begin
          hook.call if running.try_lock
        ensure
          running.unlock if running.owned?
        end
      end
    end

    # @return [#call] tells whether other threads have requests, which a collection would delay
    def others = @configuration.multithread? ? -> { !@engine.alone? } : -> { false }

    # Seconds to wait for a last request on kept-alive connections before they are closed, because a close that crosses a request loses the
    # request. Needed with a supervisor's listeners: another server may take over, and connections cannot be handed to it.
    #
    # @return [Float, nil] nil: a moment only
    def close_delay
      @configuration.graceful_timeout / 2.0 if @launcher.supervised?
    end

    def listeners
      # With a copy of a port here, clients would wait there when the proxy has ended.
      @launcher.listeners.each { |listener| listener.close if listener.role == :edge }
      open = own_listeners.to_h { |listener| [listener, { fd: listener.fileno, tcp: listener.tcp? }] }
      known_listeners.map { |listener| { **open.fetch(listener, {}), env: EnvTemplate.for(listener, **env_facts) } }
    end

    def env_facts
      # Puma's users set SCRIPT_NAME. Rhebok and Unicorn do not read it.
      mounted = @configuration.puma ? { script_name: ENV["SCRIPT_NAME"].to_s.b.freeze } : {}
      { multithread: @configuration.multithread?, rhebok: @configuration.rhebok?, early_hints: @configuration.early_hints,
        io_bound: !@configuration.puma.nil? && @configuration.max_streams.positive?, **mounted }
    end

    # Listeners, also closed ones and those that are the proxy's now, because connections from those may still be kept alive.
    def known_listeners = own_listeners + (@launcher.listeners - own_listeners) + @launcher.former_listeners

    # Those whose clients this worker accepts.
    def own_listeners = @launcher.listeners.reject { |listener| listener.role == :edge }
  end

  # Template of each request's env. It has all values that are known before the request, and values that most requests share (HTTP/1.1, no
  # query). The engine overwrites a shared value only where a request differs.
  module EnvTemplate
    # RFC 3875, 4.1.17.
    SOFTWARE = "Fastrack/#{VERSION}"

    # Values of a unix socket, which has no host, port or peer: those of Unicorn and Puma. Host and port are for requests that name none.
    UNIX = { "SERVER_NAME" => "localhost", "SERVER_PORT" => "80", "REMOTE_ADDR" => "127.0.0.1", "REMOTE_PORT" => "0" }.freeze

    # Rhebok's values of a unix socket.
    RHEBOKS_UNIX = { "SERVER_NAME" => "0.0.0.0", "SERVER_PORT" => "0", "REMOTE_ADDR" => "", "REMOTE_PORT" => "0" }.freeze

    module_function

    # @param listener [Listener] listener of the requests
    # @param rhebok [Boolean] whether a unix socket has Rhebok's values
    # @param multithread [Boolean] whether several threads call the app
    # @param script_name [String] where the app is mounted; it stays in PATH_INFO, as under Puma
    # @param early_hints [Boolean] whether the app may send 103 with headers
    # @param io_bound [Boolean] whether the app may say, as under Puma, that a request is not to hold a thread
    # @return [Hash{String => Object}] frozen, as are its Strings. For `true` the engine puts an object that acts on one request, such as
    #   RequestBound::Hijack
    def for(listener, script_name: "", early_hints: false, io_bound: false, multithread: false, rhebok: false)
      {
        "SCRIPT_NAME" => script_name, "QUERY_STRING" => "", "SERVER_PROTOCOL" => "HTTP/1.1", "SERVER_SOFTWARE" => SOFTWARE,
        **(rhebok ? RHEBOKS_UNIX : UNIX),
        **(listener.tcp? ? { "SERVER_NAME" => listener.server_name, "SERVER_PORT" => listener.server_port } : {}),
        **for_rack_version, "rack.after_reply" => [], "rack.hijack?" => true, "rack.hijack" => true,
        **(early_hints ? { "rack.early_hints" => true } : {}), **(io_bound ? { "puma.mark_as_io_bound" => true } : {}),
        "rack.errors" => $stderr, "rack.input" => NullInput::SHARED, "rack.url_scheme" => "http",
        "rack.multithread" => multithread, "rack.multiprocess" => true, "rack.run_once" => false,
        "fastrack.client_gone" => true, "fastrack.timeout" => true, "fastrack.queue_time" => 0.0
      }.freeze
    end

    # Rack 2 wants rack.version, and Rack 3 forbids it. An app without Rack gets Rack 3's env. The engine gives each request Arrays of its
    # own for callbacks.
    def for_rack_version
      rack2 = defined?(::Rack) && ::Rack.respond_to?(:release) && ::Rack.release.to_i < 3
      rack2 ? { "rack.version" => [1, 1].freeze } : { "rack.response_finished" => [] }
    end
    private_class_method :for_rack_version
  end
end
