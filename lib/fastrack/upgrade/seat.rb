# frozen_string_literal: true

require "socket"
require_relative "../error"
require_relative "../listener/inherited"
require_relative "../log"
require_relative "../process/signal_trap"
require_relative "../process/guards"
require_relative "../process/last_words"
require_relative "../process/start_command"
require_relative "../repeats"
require_relative "../version"
require_relative "../worker/control_channel"
require_relative "masters"

module Fastrack
  # Values that a generation 0 gets from the master if a HUP starts it as a new program (.exec). The program is run by the server's start
  # command, because a fork would keep what Bundler has changed in the master. So a new Gemfile.lock counts, and a `current` link may lead
  # to another release.
  class Seat
    # The variable has the version and these NUMBERS.
    VARIABLE = "FASTRACK_GENERATION"
    # Swallows the lines about the configuration: the master has logged them.
    QUIET = Object.new.tap { |output| def output.puts(*) = nil }

    NUMBERS = %i[master channel death_pipe words repeats counts scoreboard subreaper background].freeze
    private_constant :NUMBERS

    class << self
      # Replaces a forked process by the program.
      #
      # @param launcher [Launcher]
      # @param channel [ControlChannel] to the master
      # @param death_pipe [IO] at end of file when the master is dead
      def exec(launcher, channel, death_pipe)
        start = StartCommand.current
        # The directory may have been moved, replaced or removed.
        Dir.chdir(start.directory) if File.directory?(start.directory)
        files = [channel.to_io.fileno, death_pipe.fileno, LastWords.writer.fileno, *Log.repeats.filenos, Fastrack.scoreboard.first.fd]
        ENV.replace(start.environment.except(*NewMaster::STALE_VARIABLES))
        ENV[VARIABLE] = [VERSION, Fastrack.scoreboard.last, *files, *[launcher.subreaper?, launcher.background?].map { |yes| yes ? 1 : 0 }].join(" ")
        ENV[Proxy::VARIABLE] = Proxy.path if launcher.configuration.proxy?
        InheritedListeners.pass_on(launcher.listeners, launcher.former_listeners, supervised: launcher.supervised?)
        # The program has no handler yet when the master asks for a thread dump.
        SignalTrap.trap(Engine::THREAD_DUMP_SIGNAL, "IGNORE")
        program, *arguments = start.command
        kept = [*files, *launcher.listeners.map(&:fileno)].to_h { |number| [number, number] }
        Process.exec([program, program], *arguments, kept.merge(close_others: true))
      rescue StandardError => e
        Log.exception("cannot start another generation 0", e)
        LastWords.say(e)
        exit!(NewMaster::NOT_FOUND)
      end

      # @param environment [Hash, ENV] the variable is removed from it
      # @return [Seat, nil] nil in a master
      # @raise [Error] in another version of Fastrack
      def take_over(environment = ENV)
        text = environment.delete(VARIABLE) or return
        version, *words = text.split
        seat = new(**NUMBERS.zip(words.map(&:to_i)).to_h)
        return seat if version == VERSION

        raise Error, "the app's bundle has Fastrack #{VERSION}, and the master is #{version}: USR2 (fastrack restart) brings another version"
      end

      # @return [Boolean] whether this process is to be a generation 0
      def taken?(environment = ENV) = environment.key?(VARIABLE)
    end

    # @return [Integer] pid of the master
    attr_reader :master
    # @return [ControlChannel]
    attr_reader :channel
    # @return [IO] at end of file when the master is dead
    attr_reader :death_pipe
    # @return [Array<Listener>] closed; workers get descriptors of them
    attr_reader :all
    # @return [Array<FormerListener, Listener>] see ListenerSet
    attr_reader :former

    def initialize(master:, channel:, death_pipe:, words:, repeats:, counts:, scoreboard:, subreaper:, background:)
      @master = master
      socket = UNIXSocket.for_fd(channel)
      socket.close_on_exec = true
      @channel = ControlChannel.new(socket)
      @death_pipe = inherit(death_pipe, "r")
      LastWords.inherit(inherit(words, "w"))
      @counts = [inherit(repeats, "r"), inherit(counts, "w")]
      @scoreboard = scoreboard
      @subreaper = subreaper == 1
      @background = background == 1
    end

    # Always empty: the master's leaving listeners are among #former.
    def leaving = []

    def subreaper? = @subreaper

    def background? = @background

    # Whether a supervisor has opened the listeners.
    def supervised? = @supervised

    # Makes this process one of the server's. The extension must be loaded.
    #
    # @param configuration [Configuration]
    def settle(configuration)
      board = IO.for_fd(@scoreboard)
      Fastrack.scoreboard = [Scoreboard.from_fd(board.fileno), @master]
      board.close
      Log.repeats = Repeats.new(*@counts)
      ForkGuard.shared = [LastWords, Log.repeats]
      inherited = InheritedListeners.take_over
      @supervised = inherited.supervised?
      @former = inherited.former
      @all = inherited.take_all.each { |listener| listener.own.close }
      Proxy.inner_address(configuration) if configuration.proxy?
      Proxy.assign(@all, configuration)
    end

    private

    def inherit(number, mode) = IO.for_fd(number, mode).tap { |io| io.close_on_exec = true }
  end
end
