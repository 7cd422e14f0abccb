# frozen_string_literal: true

require_relative "../log"
require_relative "../process/safe_file"
require_relative "../text"

module Fastrack
  # Settings of a puma.rb that are no options: Puma's own hooks, plugins, and middleware.
  class PumaExtras
    # @return [String, nil] the app's file
    attr_accessor :rackup
    # @return [String, nil] text for process titles
    attr_accessor :tag
    # @return [Array(String, Integer)] path and mode of the state file
    attr_accessor :state
    # @return [String, nil] the file that restarts the server when it is touched
    attr_accessor :restart_file
    # @return [Hash{Symbol => Object}] options that plugins read
    attr_reader :options
    # @return [Hash{Symbol => Object}] see PumaMiddleware
    attr_reader :middleware
    # @return [Hash{Symbol => Object}] plugins by name
    attr_reader :plugins

    def initialize
      @hooks = Hash.new { |hooks, name| hooks[name] = [] }
      @data = {}
      @forked = false
      @options = {}
      @middleware = {}
      @plugins = {}
    end

    # What the master needs of them.
    #
    # @return [Hash{String => Object}] see PlainData
    def to_plain
      { "rackup" => @rackup, "tag" => @tag, "state" => @state, "restart_file" => @restart_file, "at_home" => at_home? }
    end

    # @param plain [Hash{String => Object}] see #to_plain
    # @return [PumaExtras] without hooks, plugins and middleware
    def self.of_plain(plain)
      new.tap do |extras|
        extras.rackup, extras.tag, extras.restart_file = plain.values_at("rackup", "tag", "restart_file").map { |text| text&.to_str }
        path, mode = plain["state"]
        extras.state = [path&.to_str, mode && Option::Types.mode(mode)] if path
        at_home = plain["at_home"] == true
        extras.define_singleton_method(:at_home?) { at_home }
      end
    end

    # @param key [String, Symbol, nil] a hook with a key gets a Hash, which hooks with the same key share in a worker
    def add(event, key = nil, &block)
      raise ArgumentError, "needs a block" unless block

      @hooks[event] << [block, key&.to_sym]
    end

    # @return [Boolean] whether there is a hook for any of these
    def hooks?(*events) = events.any? { |event| @hooks.key?(event) }

    # Calls the hooks of an event. As in Puma, an exception is logged and does not stop the other hooks.
    def run(event, *arguments)
      each_call(event, arguments) do |call|
        call.call
      rescue StandardError, ScriptError => e
        Log.exception("#{event} failed", e)
      end
    end

    # Calls the hooks of an event in a mold. No hook ends the mold, or keeps it waiting.
    #
    # @param hooks [MasterHooks]
    def fire(event, hooks, *arguments) = each_call(event, arguments) { |call| hooks.call(event, &call) }

    # The hooks as options of Fastrack.
    #
    # @return [Hash{Symbol => Proc}]
    def option_hooks
      {
        BeforeFork: [%i[before_fork before_worker_fork], ->(server, worker) { before_fork(server.hooks, worker.nr) }],
        AfterFork: [%i[before_worker_boot], ->(_server, worker) { run(:before_worker_boot, worker.nr) }],
        BeforeRefork: [%i[before_refork], ->(_server, worker) { run(:before_refork, worker.nr) }],
        OnThreadStart: [%i[before_thread_start], -> { run(:before_thread_start) }],
        OnThreadExit: [%i[before_thread_exit], -> { run(:before_thread_exit) }],
        BeforeWorkerShutdown: [%i[before_worker_shutdown], ->(_server, worker) { run(:before_worker_shutdown, worker.nr) }],
        AfterWorkerExit: [%i[after_worker_shutdown], ->(server, worker, status) { after_exit(server.hooks, worker, status) }],
        BeforeExec: [%i[before_restart], ->(server) { run(:before_restart, server) }]
      }.filter_map { |option, (events, hook)| [option, hook] if hooks?(*events) }.to_h
    end

    # Whether generation 0 is to stay, because plugins run there, or hooks for the server's whole life.
    def at_home? = @plugins.any? || hooks?(:after_booted, :after_stopped, :after_worker_shutdown)

    # Called in a worker that becomes a mold: its connections are others than those of the process that has forked it.
    def forget_forks
      @forked = false
    end

    # @return [#call, nil] the hook for the time after each response
    def out_of_band
      -> { run(:out_of_band) } if hooks?(:out_of_band)
    end

    # @param app [#call]
    # @return [#call]
    def wrap(app)
      return app if @middleware.empty?

      PumaMiddleware.wrap(app, @middleware)
    end

    # Called in generation 0.
    #
    # @param launcher [Launcher]
    # @return [PumaPlugins] to be started
    def plugins_for(launcher)
      require_relative "plugins"
      PumaPlugins.new(launcher, self)
    end

    # @param launcher [Launcher]
    # @yieldreturn [Boolean] see RestartFile
    # @return [RestartFile, nil]
    def restarter(launcher, &two_masters)
      RestartFile.new(@restart_file, launcher, two_masters) if @restart_file
    end

    # Writes the state file for pumactl. Written again when a new master has failed, because that one has overwritten the file.
    def write_state
      path, mode = @state
      SafeFile.write(path, "---\npid: #{Process.pid}\nrunning_from: \"#{Dir.pwd}\"\n", mode || 0o666) if path
    rescue SystemCallError => e
      Log.line("cannot write the state file #{path}: #{SafeFile.reason(e)}", :error)
    end

    private

    # @yieldparam call [Proc] calls one of the hooks
    def each_call(event, arguments)
      return unless @hooks.key?(event)

      @hooks[event].each { |block, key| yield(-> { block.call(*arguments, *(key && [@data[key] ||= {}])) }) }
    end

    # Puma calls `before_fork` once, so only the first fork of a mold does.
    def before_fork(hooks, number)
      fire(:before_fork, hooks) unless @forked
      @forked = true
      fire(:before_worker_fork, hooks, number)
    end

    # The methods of Puma's worker handle that hooks use.
    Exited = Struct.new(:index, :pid, :process_status)
    private_constant :Exited

    def after_exit(hooks, worker, status)
      fire(:after_worker_shutdown, hooks, Exited.new(worker.nr, worker.pid, status))
    end
  end

  # Middleware for words of a puma.rb.
  module PumaMiddleware
    module_function

    # @param app [#call]
    # @param given [Hash{Symbol => Object}] see PumaFile
    # @return [#call]
    def wrap(app, given)
      %i[fiber methods address scheme].each { |name| app = public_send(name, app, given[name]) if given[name] }
      return app unless given[:log]

      require "rack"
      ::Rack::CommonLogger.new(app, given[:logger] || $stdout)
    end

    # Thread and fiber locals of the app end with the request.
    def fiber(app, _which) = ->(env) { Fiber.new { app.call(env) }.resume }

    def methods(app, allowed)
      lambda do |env|
        next app.call(env) if allowed.include?(env["REQUEST_METHOD"])

        text = "#{env["REQUEST_METHOD"]} method is not supported"
        [501, { "content-type" => "text/plain", "content-length" => text.bytesize.to_s }, [text]]
      end
    end

    # @param source [String, Hash] the address, or the env key of its header, whose first word counts
    def address(app, source)
      lambda do |env|
        address = source.is_a?(Hash) ? env[source[:header]].to_s[/[^\s,]+/] : source
        app.call(address ? env.update("REMOTE_ADDR" => address) : env)
      end
    end

    def scheme(app, name) = ->(env) { app.call(env.update("rack.url_scheme" => name)) }
  end

  # Restarts the server when a file is touched (plugin :tmp_restart).
  class RestartFile
    # @return [Float] monotonic seconds when #step checks again
    attr_reader :due_at

    # @param path [String]
    # @param launcher [Launcher]
    # @param two_masters [#call] whether another master is there
    def initialize(path, launcher, two_masters)
      @path = Text.expand(path)
      @name = path
      @launcher = launcher
      @two_masters = two_masters
      @seen = mtime
      @due_at = 0.0
    end

    # Checks once a second.
    #
    # @param now [Float] monotonic seconds
    def step(now)
      return if now < @due_at

      @due_at = now + 1
      found = mtime
      # Neither of two masters starts a third one.
      return if found.nil? || found == @seen || (@launcher.loaded? && @two_masters.call)

      @seen = found
      Log.line("#{@name} was touched: restarting (#{@launcher.restart})")
    end

    private

    # A missing file restarts nothing.
    def mtime
      File.stat(@path).mtime
    rescue SystemCallError
      nil
    end
  end
end
