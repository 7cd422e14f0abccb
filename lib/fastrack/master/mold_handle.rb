# frozen_string_literal: true

require_relative "../worker/control_channel"
require_relative "worker_handle"

module Fastrack
  # The master's view of generation 0.
  class MoldHandle < WorkerHandle
    # @param process [HeldChild]
    # @param channel [ControlChannel] the master's end
    # @param spawned_at [Float] monotonic seconds
    def initialize(process, channel, spawned_at)
      super(nil, process, 0, channel, nil, spawned_at, from: :first)
      @state = :mold
      @loaded = @started = @plugins = @reopens = false
    end

    def first? = true

    # Whether the app is loaded, so that this process forks workers.
    def loaded? = @loaded

    # @return [Handing, nil] brings the settings that the process has read
    attr_accessor :handing

    # @return [EarlyErrors, nil] of a process that is a program of its own
    attr_accessor :errors

    # Whether it takes the place of one that has ended, without a HUP.
    attr_writer :remake

    def remake? = @remake || false

    # @return [String, nil] place in the app's code that forbids reforks
    attr_accessor :forbids

    # @return [Integer] requests that the process has answered
    def served = 0

    # @return [Boolean] as for a worker: whether the process has booted
    def ready? = @loaded

    def molded
      @loaded = true
      reopen_logs if @reopens
    end

    # Waits until the app is loaded. Before that the process may be a program without a handler, and the signal would end it.
    def reopen_logs
      @reopens = !@loaded
      super if @loaded
    end

    # See #reopen_logs.
    def log_backtraces = (super if @loaded)

    # @param pss [Integer] bytes, as the process has measured them
    # @param private [Integer]
    def note_memory(pss, private)
      @memory = ProcessMemory.new(pss, private)
    end

    def name = "generation 0 (pid #{@pid})"

    # Has the plugins started.
    #
    # @param later [Boolean] whether the server serves already, so that a plugin that does not start is no reason to end
    def start(later: false)
      @started = true
      @channel.write([ControlChannel::START, *("later" if later)].join(" "))
    end

    # Whether the plugins were told to start.
    def started? = @started

    # Whether the plugins have started.
    def plugins? = @plugins

    # Called when STARTED has arrived.
    def note_plugins
      @plugins = true
    end

    # Has the plugins stopped, and ends the process.
    #
    # @param again [Boolean] whether the server is to start again
    def finish(again)
      return if stopping?

      @state = :stopping
      @stopping_since = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      # Ends a hook that may run at the moment.
      terminate
      @channel.write([ControlChannel::FINISH, *("again" if again)].join(" "))
    end

    # Has the process lend its ports, see LentPorts.
    #
    # @param socket [UNIXSocket]
    def lend(socket) = (@channel.lend(socket) if @loaded && !stopping?)

    # Ends what a hook or a plugin does at the moment.
    def terminate = signal("TERM")
  end
end
