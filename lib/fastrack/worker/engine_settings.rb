# frozen_string_literal: true

require_relative "../log"
require_relative "../rack/env_template"
require_relative "../rack/error_page"
require_relative "../rack/exception_report"
require_relative "../rack/temporary_folder"
require_relative "../gc/oob_gc"
require_relative "memory_check"

module Fastrack
  # What a worker's engine is created with.
  class EngineSettings
    # Readers of Configuration that the engine takes as they are, by its own names.
    AS_CONFIGURED = {
      timeout: :client_timeout, chunked: :chunked_transfer, max_body: :max_body_size, max_target: :max_request_target,
      max_head: :max_header_size, max_fields: :max_header_fields,
      **%i[header_timeout body_timeout write_timeout request_timeout worker_timeout max_queue_time keep_alive keep_alive_timeout
           keep_alive_requests response_buffer max_response_spool stream_body].to_h { |word| [word, word] }
    }.freeze

    # Loads what only some configurations need. The master does so before it forks.
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
    # @return [Engine]
    def engine(slot:, master_fd:, nr: 0, memory_note: nil)
      @memory_note = memory_note
      @engine = Engine.new(listeners, { **settings, slot: slot, master_fd: master_fd, nr: nr })
    end

    private

    def settings
      {
        **AS_CONFIGURED.transform_values { |word| @configuration.public_send(word) },
        parting_time: close_delay,
        threads: @configuration.max_threads,
        dispatch: @launcher.queue,
        access_log: @launcher.access_log&.fileno, access_log_format: @configuration.access_log_format,
        error_page: ErrorPage.for(@configuration.lowlevel_error_handler),
        decode_path: @configuration.path_info == "decoded",
        tmpdir: TemporaryFolder.path,
        listeners: known_listeners.map(&:identity),
        after_response: after_response
      }
    end

    def after_response
      calls = [out_of_band, @memory_note, memory_check, oob_gc].compact
      calls.size > 1 ? -> { calls.each(&:call) } : calls.first
    end

    def oob_gc
      choice = @configuration.oobgc or return
      EngineSettings.load(@configuration)
      return AutoGC.new { @engine } if choice == :auto && AutoGC.possible?

      Log.line("OobGC=auto acts as OobGC=true: Ruby #{RUBY_VERSION} does not tell how full its heap is") if choice == :auto
      OobGC.start(@gc_interval, -> { @engine.waiting? }, others)
    end

    def memory_check
      limit = @configuration.max_memory_per_child or return
      MemoryCheck.new(limit, @channel, @memory_note) if ProcessMemory.known?
    end

    # A puma.rb's hook. As in Puma, it begins when no thread has a request, and runs once at a time.
    def out_of_band
      hook = @configuration.puma&.out_of_band
      return hook if hook.nil? || @configuration.max_threads == 1

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

    # @return [#call] whether other threads have requests, which a collection would hold up
    def others = @configuration.max_threads == 1 ? -> { false } : -> { !@engine.alone? }

    # Seconds to wait for a last request on kept-alive connections before they are closed: a close that crosses a request
    # loses it. With a supervisor's listeners another server may take over, to which connections cannot be handed.
    #
    # @return [Float, nil] nil: only a moment
    def close_delay
      @configuration.graceful_timeout / 2.0 if @launcher.supervised?
    end

    def listeners
      open = @launcher.listeners.to_h { |listener| [listener, { fd: listener.fileno, tcp: listener.tcp? }] }
      known_listeners.map { |listener| { **open.fetch(listener, {}), env: EnvTemplate.for(listener, **env_facts) } }
    end

    def env_facts
      # Puma's users set it; Rhebok and Unicorn do not know it.
      mounted = @configuration.puma ? { script_name: ENV["SCRIPT_NAME"].to_s.b.freeze } : {}
      { multithread: @configuration.max_threads > 1, rhebok: @configuration.rhebok?, early_hints: @configuration.early_hints, **mounted }
    end

    # Closed ones also count: connections from them may still be kept alive.
    def known_listeners = @launcher.listeners + @launcher.former_listeners
  end
end
