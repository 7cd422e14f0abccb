# frozen_string_literal: true

require_relative "../backtrace"
require_relative "../error"
require_relative "../listener/inherited"
require_relative "../log"
require_relative "../process/signal_trap"
require_relative "../process/guards"
require_relative "../process/last_words"
require_relative "../process/memory"
require_relative "../memory/shareable"
require_relative "../upgrade/lent_ports"
require_relative "engine_builder"
require_relative "lost_threads"
require_relative "mold"
require_relative "threads"

module Fastrack
  # Generation 0: loads the app as the app's user, and forks the workers. before_fork, plugins and their events run
  # here. In Unicorn and Puma the master runs them. The master of Fastrack holds nothing of the app's.
  #
  #     loading --the app is loaded--> waiting for orders --START--> with plugins --FINISH--> (ended)
  class FirstMold < Mold
    # @param starting [Boolean] whether the server starts, so that it ends if the app or a plugin fails
    # @param prepared [Boolean] whether the master has called before_fork for the first worker
    # @param seat [Seat, nil] of a process that a HUP has forked
    def initialize(launcher, app, channel, death_pipe, starting:, prepared: false, seat: nil) # rubocop:disable Metrics/ParameterLists
      super(launcher, app, channel, death_pipe)
      @seat = seat
      @starting = starting
      @prepared = prepared
    end

    # The life of the process from the fork on.
    #
    # @return [Integer] the exit status
    def live
      guard = OrphanGuard.start(@death_pipe, @channel, name)
      # A terminal's INT comes to the master, too.
      trap("INT", "DEFAULT") if @seat && @starting
      sit if @starting
      enter
      sit unless @starting
      prepare
      guard.kill.join
      be_ready
      obey
      finish
      0.tap { |status| QuickExit.install(status) }
    rescue SystemExit => e
      # The app, or a hook, has called exit while the app was loaded.
      LastWords.say("exit(#{e.status}) was called while the app was loaded")
      e.status
    rescue Exception => e # rubocop:disable Lint/RescueException -- nothing above would show it
      fail_with(e)
    end

    private

    def role = "generation 0"

    # Reads the ConfigFile.
    def sit
      return unless @seat

      @launcher.sit(@seat, starting: @starting)
      @scoreboard, @master = Fastrack.scoreboard
    end

    # For the log.
    def name = "generation 0 (pid #{Process.pid})"

    def be_ready
      # Only the first generation 0 opens log files. A later one, of a HUP, has the master's.
      @launcher.redirect_output if @starting && @seat&.opens_logs? != false
      tell_warm_up if @report
      LentPorts.close
      tell(ControlChannel::MOLD)
      tell_memory
    end

    def enter
      take_signals
      LastWords.forked
      @launcher.disown_pid_file
      Fastrack.refork_forbids = -> { tell(ControlChannel::FORBID, Fastrack.refork_forbidden) }
      SignalTrap.trap(Engine::THREAD_DUMP_SIGNAL, proc { Log.line("#{name} takes too long:\n#{ThreadDump.text.chomp}") })
    end

    # Becomes the app's user first, so that no line of the app runs with more rights.
    def prepare
      configuration.user&.switch
      EngineBuilder.load(configuration)
      Fastrack.max_threads = configuration.max_threads
      require_relative "../warm_up" if configuration.warm_up
      @leftovers = WarmUp::Leftovers.new if configuration.warm_up
      load_app unless @launcher.loaded?
      warm_up if configuration.warm_up
      ShareableMemory.prepare unless @launcher.loaded? && @report.nil?
    end

    def load_app
      @app = configuration.load_app(@app) if configuration.preload_app
      # The app may have set handlers of its own.
      @signals.install
    end

    # Asks the app for pages. Then before_fork closes the app's connections, before the heap is compacted.
    #
    # @raise [Error] if the warm-up is required, and has failed
    def warm_up
      return Log.line("#{configuration.source(:WarmUp)} has no effect: preload_app is false") unless @app.respond_to?(:call)

      @warm_up = WarmUp.new(configuration, @app, hooks.method(:within))
      @report = @warm_up.run
      @signals.install
      required = configuration.warm_up_required
      raise Error, @report.failure if required && @report.failure && !ending_order

      @prepared = hooks.call_hook(:before_fork, Worker.new(0, @launcher, @app, nil))
      @shared = @leftovers.names
      raise Error, "warm-up: #{shared_line}" if required == :connections && @shared.any?
    end

    def shared_line
      "generation 0 has #{Log.count(@shared.size, "connection")} that its workers would share: #{@shared.join(", ")}; close #{@shared.one? ? "it" : "them"} in before_fork"
    end

    def tell_warm_up
      Log.line(@report.line, @report.level)
      Log.line(shared_line, :warn) if @shared.any?
    end

    # See Mold.
    public def descriptors = [*super, *@warm_up&.descriptors]

    def fork_worker(order)
      super
      tell_memory
    end

    def before_fork(worker)
      @prepared ? @prepared = false : super
      tell_threads unless @told
    end

    # Says at the first fork which threads the workers will not have. Nobody else would: the app works, and its poller is silent.
    def tell_threads
      @told = true
      LostThreads.tell
    end

    # Tells the master this process's memory, where the master may not read it.
    def tell_memory
      @hidden = ProcessMemory.hidden_from?(@master) if @hidden.nil?
      memory = @hidden ? ProcessMemory.of("self") : nil
      tell(ControlChannel::MEMORY, *memory) if memory
    end

    # @return [Integer] the exit status
    def fail_with(error)
      text = error.is_a?(Error) ? error.message : "the app does not load: #{Backtrace.text(error)}"
      tell_failure(text.scrub("?").gsub(/[^[:print:]\n\t]/, "?"), error)
      LastWords.say(text)
      1
    end

    # Tells of a failure. At the server's start the error looks like one of the command.
    def tell_failure(text, error)
      if @starting then Log::STDERR.puts("fastrack: #{text}")
      elsif error.is_a?(Error) then Log.line(text, :error)
      else Log.exception("the app does not load", error)
      end
    end

    def handle(order)
      case order.kind
      when ControlChannel::LEND then order.descriptors.each { |socket| LentPorts.lend(socket, listening) }
      when ControlChannel::START then start(later: order.words.any?)
      when ControlChannel::FINISH
        @again = order.words.any?
        :finish
      else super
      end
    end

    # @param later [Boolean] whether the server serves already
    def start(later:)
      @unshared = listening if configuration.puma&.at_home?
      @plugins = configuration.puma&.plugins_for(@launcher)
      @plugins&.start(wait: later)
      tell(ControlChannel::STARTED)
    rescue Error => e
      raise unless later

      Log.line(e.message, :error)
    end

    def pause = @plugins&.pause

    def handle_signals
      super
      @plugins&.try_again
    end

    # Workers give up the ports of plugins. Otherwise generation 0 could not give such a port up, and its successor could not take it.
    def begin_worker(worker, listeners, socket, *descriptors)
      give_up_ports([socket, *descriptors].map(&:fileno)) if @unshared
      super
    end

    # Each descriptor leads to /dev/null, because Ruby's object for the socket lives on.
    #
    # @param keep [Array<Integer>]
    def give_up_ports(keep)
      File.open(File::NULL) { |null| (listening - @unshared - keep).each { |number| Fastrack.replace_file(number, null.fileno) } }
    end

    # @return [Array<Integer>] descriptors of listening sockets
    def listening
      Dir.children("/dev/fd").map(&:to_i).select do |number|
        InheritedListeners.socket(number)
      rescue SystemCallError, SocketError, ArgumentError
        false
      end
    end

    # Events without numbers are the plugins'.
    def event(name, *numbers) = numbers.empty? ? @plugins&.fire(name.to_sym) : super

    # Limits the time, because hooks may hang after the master's end, too.
    def finish
      seconds = [configuration.graceful_timeout, Worker::LEAST_TIME].max
      ChildProcess.end_within(seconds, 1, "fastrack: #{name} has not ended within #{format("%g", seconds)} s: ending it\n")
      hooks.limit.ending
      @signals.shift until @signals.size.zero?
      @plugins&.fire(@again ? :before_restart : :after_stopped)
    end
  end
end
