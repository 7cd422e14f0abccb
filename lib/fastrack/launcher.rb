# frozen_string_literal: true

require_relative "configuration"
require_relative "configuration/unicorn_api"
require_relative "error"
require_relative "listener/change"
require_relative "listener/inherited"
require_relative "log"
require_relative "master"
require_relative "process/guards"
require_relative "process/pid_file"
require_relative "process/settings"
require_relative "process/start_lines"
require_relative "upgrade/old_master"
require_relative "upgrade/start_command"

module Fastrack
  # A server, from its options to its end. Handlers yield it to a block, which can stop it. Hooks get it as `server`.
  class Launcher
    include UnicornServerApi

    # @return [Configuration] replaced by a HUP
    attr_reader :configuration
    # @return [Array<Listener>]
    attr_reader :listeners
    # @return [Array<Listener>] closed ones: connections from them may still be kept alive
    attr_reader :former_listeners
    # @return [SharedQueue, nil] nil without HandOver
    attr_reader :queue
    # @return [PidFile, nil]
    attr_reader :pid_file
    # @return [IO, nil]
    attr_reader :access_log

    # Checks the options, then listens, then loads the app: errors are raised before anything is forked.
    #
    # @param app [#call, AppFile] a Rack app, or a file to load it from
    # @param options [Hash] see Option
    # @param overrides [Hash] see Configuration
    # @raise [Error]
    def initialize(app, options = {}, overrides = {})
      loadable = app.respond_to?(:load) && !app.respond_to?(:call)
      raise Error, "the app does not respond to call: #{app.inspect[0, 200]}" unless loadable || app.respond_to?(:call)

      @master_pid = Process.pid
      StartCommand.current.daemonized if options[:daemonize]
      @configuration = Configuration.new(options, overrides: overrides)
      @process_settings = ProcessSettings.new(@configuration)
      @process_settings.apply
      @process_settings.format_log
      @access_log = @process_settings.access_log
      load_engine
      old_master = OldMaster.take_over
      @queue = OldMaster.take_over_queue(@configuration.hand_over)
      open_listeners
      @pid_file = @configuration.pid && PidFile.new(@configuration.pid)
      @interactive = @configuration.development? && !supervised? && ProcessSettings.foreground?
      app = loadable ? preload(app) : loaded(app)
      @loaded = app.respond_to?(:call)
      @master = Master.new(self, app, old_master)
    end

    # @return [Boolean] whether a developer sits in front of it
    def interactive? = @interactive

    # Serves until the server is told to stop.
    #
    # @param background [Boolean] whether there is no terminal to write to
    # @yield when it listens, before the first worker is spawned
    def run(background: false, &listening)
      @background = background
      StartCommand.current.run_again(@configuration.pid_files) if serve(&listening)
    end

    # Makes #run return once all current requests are finished. Safe in a signal handler, on any thread, and before #run.
    def stop
      @master.stop
    end
    alias shutdown stop

    # Reads the ConfigFile again. Listeners whose address is still configured stay open.
    #
    # @yield what reads it, which may take for ever
    # @yieldparam seconds [Float] how long it may take; 0: no limit
    # @yieldparam reading [#call]
    # @yieldreturn what `reading` returns
    # @return [Array<Listener>] those that are no longer configured, now closed
    # @raise [Error] and nothing has changed
    def reload
      ProcessSettings.find_directory(@configuration)
      configuration = yield(@configuration.worker_boot_timeout, @configuration.method(:reload))
      unless supervised? || configuration.place == @configuration.place
        change = ListenerChange.new(@listeners, @configuration, configuration)
      end
      settings = ProcessSettings.new(configuration)
      settings.apply
      replace_access_log(settings.access_log)
      settings.redirect
      settings.format_log
      LogFiles.remember
      EngineSettings.load(configuration)
      @configuration = configuration
      change ? change_listeners(change) : []
    rescue Exception # rubocop:disable Lint/RescueException -- it is raised again
      change&.cancel
      raise
    end

    # @return [Boolean] whether a supervisor has opened the listeners, so that the configuration has no say
    def supervised? = @supervised

    # All workers of a generation serve.
    def ready
      Log.say("Fastrack is ready Workers:#{worker_processes} Pid:#{Process.pid}")
      booted = @booted
      @booted = true
      fire(:after_booted) unless booted
    end

    # All workers are gone, and signals are still heard.
    #
    # @param again [Boolean] whether the server is to start again
    def stopped(again:)
      again ? before_restart : fire(:after_stopped)
    end

    # @!visibility private
    # @return [MasterHooks]
    def hooks = @master.hooks

    # Makes new code serve, for plugins of Puma's. In development by a start in the same process: a terminal, foreman or a
    # container would take a new one for the end. A server that is stopping does not start again.
    #
    # @return [String] how
    def restart
      in_place = @loaded && @configuration.development? && !@background && !supervised?
      return (@loaded ? "USR2" : "HUP").tap { |signal| Process.kill(signal, Process.pid) } unless in_place

      @master.restart
      "in this process"
    end

    # @return [String] for ps(1)
    def title(role)
      tag = @configuration.puma&.tag
      "fastrack #{role}#{" [#{tag}]" if tag}"
    end

    # @return [Integer] how many there should be now, as Unicorn's hooks ask
    def worker_processes
      @master.worker_processes
    end

    private

    # @return [Boolean] whether to start again
    def serve(&listening)
      console = ProcessSettings.console_mode if interactive?
      @master.run { prepare(&listening) }
    ensure
      console&.call
      Process.setproctitle($PROGRAM_NAME)
      close_listeners(@listeners, @former_listeners)
      @queue&.close
      @pid_file&.remove
    end

    # As before USR2 starts a new master: what hooks put into ENV counts.
    def before_restart
      ENV.replace(StartCommand.current.environment)
      hooks.call_hook(:before_exec)
      @plugins&.fire(:before_restart)
    end

    # From here on signals are queued.
    def prepare
      @pid_file&.claim
      PidFileGuard.install(@configuration.pid_files)
      # Before an app that each worker loads, a library that wraps `exec` by an alias would wrap the guard's, which finds no other.
      ExitGuard.prepare if @loaded
      EngineSettings.load(@configuration)
      redirect_output(@background)
      yield if block_given?
      @plugins = @configuration.puma&.start(self)
      warm_up
      Process.setproctitle(title("master"))
      announce(@listeners)
      StartLines.for(@configuration).each { |line| Log.say(line) }
      [@configuration.threads_line, ProcessSettings.shortage].compact.each { |line| Log.line(line) }
    end

    # Calls hooks of a puma.rb and its plugins.
    def fire(event)
      @configuration.puma&.fire(event, hooks)
      @plugins&.fire(event)
    end

    # Workers have copies of the old one.
    def replace_access_log(file)
      @access_log.close unless [nil, STDOUT].include?(@access_log)
      @access_log = file
    end

    # Not when the gem is required: that must be possible where the extension is not built.
    def load_engine
      require_relative "native"
    end

    def open_listeners
      inherited = InheritedListeners.take_over
      @supervised = inherited.supervised?
      @listeners = @supervised ? inherited.take_all : open_configured(inherited)
    ensure
      @former_listeners = inherited ? inherited.close_rest : []
    end

    def open_configured(inherited)
      opened = []
      @configuration.addresses.each do |address|
        found = inherited.take(address)
        opened.concat(found.empty? ? address.open_with_retries : found)
      end
      opened
    rescue Error
      close_listeners(opened)
      raise
    end

    # A supervisor's files are the supervisor's.
    def close_listeners(listeners, former = [])
      listeners.each(&:close)
      [*listeners, *former].each(&:remove_file) unless supervised?
    end

    def change_listeners(change)
      @listeners = change.complete
      @former_listeners += change.removed
      announce(change.opened)
      change.removed
    end

    # One line for each address: a host name may have several listeners.
    def announce(listeners)
      listeners.map(&:to_s).uniq.each { |address| Log.say("Fastrack starts Listening on #{address} Pid:#{Process.pid}") }
      return unless @configuration.development?

      listeners.map(&:url).uniq.each { |url| Log.say("* Listening on #{url}") }
      Log.say("Use Ctrl-C to stop#{", Ctrl-\\ for backtraces" if interactive?}")
    end

    # The server listens already: clients wait meanwhile, and are not refused.
    #
    # @return [#call, AppFile] an AppFile if each worker is to load it
    def preload(app)
      @configuration.preload_app ? @configuration.load_app(app) : app
    rescue Exception # rubocop:disable Lint/RescueException -- it is raised again
      close_listeners(@listeners)
      raise
    end

    def loaded(app)
      no_effect(:PreloadApp, "the app is already loaded; use `fastrack` to load it in each worker") unless @configuration.preload_app
      no_effect(:DefaultMiddleware, "rackup has already added it") unless @configuration.default_middleware || @configuration.puma
      Log.line("rackup in a puma.rb has no effect: the app is already loaded") if @configuration.puma&.rackup
      app
    end

    def no_effect(option, reason)
      Log.line("#{@configuration.source(option)} has no effect: #{reason}")
    end

    # Unbuffered: logs are read while they are written, and must not be lost with a killed worker.
    def redirect_output(background)
      @process_settings.redirect(background ? File.open(File::NULL, "w") : nil)
      Log.flush
      # The app may have replaced the first two by objects that write to the others.
      [$stdout, $stderr, STDOUT, STDERR].each { |stream| stream.sync = true if stream.respond_to?(:sync=) }
      LogFiles.remember
    end

    # Compacts the heap and makes its objects old, so that workers share the master's memory instead of copying it at their
    # first garbage collection.
    def warm_up
      # Objects are old, and skipped by minor collections, once they have survived three.
      return 4.times { GC.start } unless Process.respond_to?(:warmup)

      Process.warmup
      # A compact heap has little room left. This collection lets it grow; else those of the workers would have to, and it takes a
      # full mark, which on Ruby 3.3 writes to the code of all methods.
      GC.start if RUBY_VERSION.start_with?("3.3.")
    end
  end
end
