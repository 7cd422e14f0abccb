# frozen_string_literal: true

require "tmpdir"
require_relative "worker/control_channel"
require_relative "rack/env_template"
require_relative "rack/error_page"
require_relative "process/exit_guard"
require_relative "process/fork_guard"
require_relative "hook"
require_relative "configuration/unicorn_worker_api"
require_relative "log"
require_relative "log_files"
require_relative "worker/oob_gc"
require_relative "worker/thread_dump"

module Fastrack
  # A process that serves requests, from its fork to its end. The master makes the object before the fork, for the hooks.
  class Worker
    include HookWorker

    # What the master acts upon. A terminal sends INT, QUIT and HUP to all processes of the job alike, so that most of
    # them are nothing for a worker. They are taken rather than ignored, because commands that the app starts would
    # inherit that.
    STOP_SIGNALS = %w[TERM QUIT].freeze
    MASTER_SIGNALS = %w[INT HUP USR2 TTIN TTOU WINCH].freeze

    # From the master alone: the server is about to stop. Its default action is to be ignored, so that it does no harm to a
    # worker that has no handler yet.
    DRAIN_SIGNAL = "URG"

    # Opens the log files anew. The master passes it on, once it has done so itself.
    LOG_SIGNAL = "USR1"

    # Seconds to wait for the master's word on whether to go. It answers at once unless it is stopped (SIGSTOP).
    ANSWER_TIMEOUT = 1

    # @return [Integer] its slot, from 0
    attr_reader :nr

    # @param launcher [Launcher]
    # @param app [#call, AppFile] the latter is loaded by the worker
    # @param place [Array(Scoreboard, Integer), nil] where it writes what it is at
    def initialize(nr, launcher, app, place)
      @nr = nr
      @launcher = launcher
      @configuration = launcher.configuration
      @app = app
      @place = place
      @engine = nil
    end

    # The whole life of the process: does not return. It ends without at_exit hooks, which are the master's: a pid file
    # is removed once.
    #
    # @param channel [ControlChannel] to the master
    # @param signals [SignalQueue] the master's
    # @param pending [Integer] signals in that queue before the fork
    # @param lifeline [Lifeline]
    def live(channel, signals, pending, lifeline)
      status = 1
      take_signals(signals, pending)
      ForkGuard.install { release(lifeline, channel) }
      prepare(lifeline.hold)
      serve(channel)
      status = 0
    rescue SystemExit => e
      status = e.status
    rescue Exception => e # rubocop:disable Lint/RescueException -- nothing above would show it
      Log.exception("worker #{@nr} failed", e)
    ensure
      Log.flush
      exit!(status)
    end

    private

    def take_signals(signals, pending)
      @pid = Process.pid
      STOP_SIGNALS.each { |name| take(name) { stop } }
      MASTER_SIGNALS.each { |name| take(name) }
      # Not in the signal handler, which may not wait for what a stream's writers hold.
      take(LOG_SIGNAL) { @engine ? @engine.pause : Thread.new { LogFiles.reopen } }
      take(DRAIN_SIGNAL) { @engine&.drain }
      trap("CHLD", "DEFAULT")
      heed(signals.arrived_since_fork(pending))
      signals.close
    end

    # What has come before there were handlers.
    def heed(names)
      stop unless (names & STOP_SIGNALS).empty?
      LogFiles.reopen if names.include?(LOG_SIGNAL)
    end

    # A process that the app forks has these handlers too, and does with the signals what any process does.
    def take(name)
      trap(name) do
        if Process.pid == @pid
          yield if block_given?
        else
          trap(name, "DEFAULT")
          Process.kill(name, Process.pid)
        end
      end
    end

    # In the signal handler, too. Before the engine is there, no request is either, and a hook may take for ever.
    def stop
      @engine ? @engine.stop : exit!(0)
    end

    def prepare(master_fd)
      Process.setproctitle("fastrack worker[#{@nr}]")
      # All workers have the master's random numbers ahead of them until then. The limits are drawn before a hook of the
      # app's seeds them all alike.
      srand
      @request_limit = @configuration.draw_request_limit
      @gc_interval = @configuration.draw_gc_interval
      Hook.call(@configuration.after_fork, @launcher, self)
      @configuration.user&.assume
      @app = @app.load(default_middleware: @configuration.default_middleware) unless @app.respond_to?(:call)
      @engine = Engine.new(listener_settings, engine_settings(master_fd))
      take(Engine::INQUIRY_SIGNAL) { @engine.testify(Testimony.give) }
      @engine.answer_crashes
      ExitGuard.install { @engine.give_up }
      # The engine has copies, which it closes when it stops: then nobody may hold the port any more.
      [*@launcher.listeners, @launcher.queue].compact.each(&:close)
    end

    # In a process that the app has forked off this one.
    def release(lifeline, channel)
      [@engine, lifeline, channel, *@launcher.listeners, @launcher.queue].compact.each(&:close)
    end

    # For the app, while it answers a request.
    def client_gone?
      @engine.client_gone?
    end

    # For the app, while it answers a request: how long it may take from now on.
    def allow(seconds)
      @engine.allow(seconds)
    end

    # Likewise: rack.hijack.
    def hijack
      @engine.hijack
    end

    # Likewise: rack.early_hints.
    def early_hints(headers)
      @engine.early_hints(headers)
    end

    def listener_settings
      callables = { client_gone: method(:client_gone?), timeout: method(:allow), hijack: method(:hijack) }
      callables[:early_hints] = method(:early_hints) if @configuration.early_hints
      open = @launcher.listeners.to_h { |listener| [listener, { fd: listener.fileno, tcp: listener.tcp? }] }
      known_listeners.map { |listener| { **open.fetch(listener, {}), env: EnvTemplate.for(listener, **callables) } }
    end

    # Those, too, that only kept connections have come by.
    def known_listeners
      @launcher.listeners + @launcher.former_listeners
    end

    def engine_settings(master_fd)
      {
        timeout: @configuration.timeout,
        header_timeout: @configuration.header_timeout,
        body_timeout: @configuration.body_timeout,
        write_timeout: @configuration.write_timeout,
        request_timeout: @configuration.request_timeout,
        slot: @place,
        keep_alive: @configuration.keep_alive,
        keep_alive_timeout: @configuration.keep_alive_timeout,
        parting_time: parting_time,
        keep_alive_requests: @configuration.keep_alive_requests,
        response_buffer: @configuration.response_buffer,
        dispatch: @launcher.queue&.dispatch,
        chunked: @configuration.chunked_transfer,
        error_page: ErrorPage.for(@configuration.lowlevel_error_handler),
        decode_path: @configuration.path_info == "decoded",
        max_body: @configuration.max_body_size,
        max_target: @configuration.max_request_target,
        max_head: @configuration.max_header_size,
        max_fields: @configuration.max_header_fields,
        stream_body: @configuration.stream_body,
        tmpdir: Dir.tmpdir,
        listeners: known_listeners.map(&:identity),
        master_fd: master_fd,
        after_response: @configuration.oobgc ? OobGC.start(@gc_interval, -> { @engine.waiting? }) : nil
      }
    end

    # Where a supervisor has the listeners another server may take over, with no queue in common: who has kept a connection
    # is told to leave then rather than shut out, for a close that crosses a request costs that request.
    #
    # @return [Float, nil] seconds; nil for a moment
    def parting_time
      @configuration.graceful_timeout / 2.0 if @launcher.listeners_given?
    end

    def serve(channel)
      Hook.call(@configuration.after_worker_ready, @launcher, self)
      channel.say(ControlChannel::READY)
      return unless run(@request_limit) == :limit

      # Where its place cannot be spared just now, it serves until the master tells it to go.
      may_go?(channel) ? finish : run(0)
    rescue SystemExit
      # The app has had enough of this process. Its other clients have not.
      finish
      raise
    end

    # Log files are opened anew between two requests: a write to one of them that is under way would fail.
    #
    # @param limit [Integer] requests to serve; 0: any number
    # @return [Symbol] see Engine#run
    def run(limit)
      last = @engine.requests + limit
      loop do
        finish = @engine.run(@app, limit)
        return finish unless finish == :paused

        LogFiles.reopen
        next if limit.zero?

        limit = last - @engine.requests
        return :limit unless limit.positive?
      end
    end

    # Serves the requests that have begun to arrive, and no others.
    def finish
      @engine.stop
      run(0)
    rescue SystemExit
      # With each one that ends so, there is one less.
      retry
    end

    # @return [Boolean] without an answer it stays: the master says go by a signal as well
    def may_go?(channel)
      channel.say(ControlChannel::LIMIT_REACHED)
      words = channel.await(ANSWER_TIMEOUT)
      words.nil? || words.include?(ControlChannel::GO)
    end
  end
end
