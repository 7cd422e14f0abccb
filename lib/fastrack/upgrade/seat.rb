# frozen_string_literal: true

require "socket"
require_relative "../configuration/handed"
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
require_relative "early_errors"
require_relative "handing"
require_relative "lent_ports"
require_relative "masters"

module Fastrack
  # The place of a generation 0 that a HUP has started, in that process. A server that `fastrack` has started runs its start command again
  # (.exec), because a fork would keep what Bundler has changed in the master. So a new Gemfile.lock counts, and a `current` link may lead to
  # another release. That program runs as the app's user from its first instruction on. It reads the ConfigFile, and hands the settings to
  # the master (#settle).
  class Seat
    # The variable has the version and these NUMBERS.
    VARIABLE = "FASTRACK_GENERATION"

    NUMBERS = %i[master channel death_pipe words handing ports subreaper background].freeze
    private_constant :NUMBERS

    # Keeps lines about the configuration, which the master logs.
    class Lines < Array
      def puts(text) = push(text)
    end

    class << self
      # Replaces a forked process by the program.
      #
      # @param launcher [Launcher]
      # @param channel [ControlChannel] to the master
      # @param death_pipe [IO] at end of file when the master is dead
      # @param handing [Handing] to the master
      # @param ports [UNIXSocket] see LentPorts
      # @param errors [EarlyErrors]
      def exec(launcher, channel, death_pipe, handing, ports, errors) # rubocop:disable Metrics/ParameterLists
        # What the program looks up, from its folder to each gem, is the app's user's to change.
        launcher.configuration.user&.switch
        start = StartCommand.current
        files = [channel.to_io, death_pipe, LastWords.writer, handing.to_io, ports].map(&:fileno)
        ENV.replace(start.environment.except(*NewMaster::STALE_VARIABLES))
        start.enter
        ENV[VARIABLE] = [VERSION, Fastrack.scoreboard.last, *files, *[launcher.subreaper?, launcher.background?].map { |yes| yes ? 1 : 0 }].join(" ")
        Proxy.inner_address(launcher.configuration)
        ENV[Proxy::VARIABLE] = Proxy.path
        # The program has no handler yet when the master asks for a thread dump.
        SignalTrap.trap(Engine::THREAD_DUMP_SIGNAL, "IGNORE")
        program, *arguments = start.command
        Process.exec([program, program], *arguments, files.to_h { |number| [number, number] }.merge(errors.redirections, close_others: true))
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
        numbers = NUMBERS.zip(words.map(&:to_i)).to_h
        LastWords.inherit(inherit(numbers[:words], "w"))
        unless version == VERSION
          raise Error, "the app's bundle has Fastrack #{VERSION}, and the master is #{version}: USR2 (fastrack restart) brings another version"
        end

        channel, handing, ports = numbers.values_at(:channel, :handing, :ports).map { |number| UNIXSocket.for_fd(number).tap { |socket| socket.close_on_exec = true } }
        LentPorts.expect(ports)
        new(master: numbers[:master], channel: ControlChannel.new(channel), death_pipe: inherit(numbers[:death_pipe], "r"),
            handing: Handing.new(handing), subreaper: numbers[:subreaper] == 1, background: numbers[:background] == 1)
      end

      # @return [Boolean] whether this process is to be a generation 0
      def taken?(environment = ENV) = environment.key?(VARIABLE)

      private

      def inherit(number, mode) = IO.for_fd(number, mode).tap { |io| io.close_on_exec = true }
    end

    # What the master sends when it has taken the settings over. Names of listeners come with their descriptors.
    #
    # @param launcher [Launcher]
    # @return [Array(Hash, Array<IO>)]
    def self.answer(launcher)
      shared = [*Fastrack.scoreboard.first.fd, *Log.repeats.filenos, STDOUT.fileno, STDERR.fileno, *launcher.access_log&.fileno]
      listeners = launcher.listeners.reject(&:closed?)
      facts = {
        "listeners" => listeners.map { |listener| listener.tcp? ? listener.to_s : InheritedListeners::UNIX }, "supervised" => launcher.supervised?,
        "former" => launcher.former_listeners.map { |listener| FormerListener.describe(listener) },
        "access_log" => launcher.access_log && LogFiles.path(launcher.access_log).to_s, "board" => !Fastrack.scoreboard.first.fd.nil?,
        "logs" => [STDOUT, STDERR].map { |stream| LogFiles.path(stream) }, "background" => launcher.background? || false, "proxy" => Proxy.path
      }
      [facts, [*shared, *listeners.map(&:fileno)].map { |number| IO.for_fd(number, autoclose: false) }]
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
    # @return [IO, nil] target of the access log
    attr_reader :access_log

    # @param opens_logs [Boolean] whether this process opens log files. Else it has the master's
    def initialize(master:, channel:, death_pipe:, handing:, subreaper:, background:, opens_logs: false) # rubocop:disable Metrics/ParameterLists
      @master = master
      @channel = channel
      @death_pipe = death_pipe
      @handing = handing
      @subreaper = subreaper
      @background = background
      @opens_logs = opens_logs
    end

    def opens_logs? = @opens_logs

    # Always empty: the master's leaving listeners are among #former.
    def leaving = []

    def subreaper? = @subreaper

    def background? = @background

    # Whether a supervisor has opened the listeners.
    def supervised? = @supervised

    # Reads the ConfigFile, and keeps the lines about it for the master. Without a configuration this process ends.
    #
    # @yieldparam lines [Hash{Symbol => Lines}] see Configuration
    # @yieldreturn [Configuration]
    # @return [Configuration]
    def read
      @lines = { output: Lines.new, warnings: Lines.new }
      yield @lines
    rescue Error, SystemExit => e
      exits = e.is_a?(SystemExit)
      hand("refused" => exits ? "the ConfigFile calls exit" : e.message, "status" => exits ? e.status : nil)
      exit!(1)
    end

    # Hands the settings over, and makes this process one of the server's. The extension must be loaded.
    #
    # @param configuration [Configuration]
    def settle(configuration)
      hand("settings" => Reading.of(configuration))
      facts, descriptors = @handing.take
      # The master has no use for this process.
      exit!(1) unless facts
      @handing.close
      take(facts, descriptors)
      Proxy.assign(@all, configuration)
    end

    private

    def hand(data) = @handing.put({ **data, **@lines.transform_keys(&:to_s) })

    # @param facts [Hash] see .answer
    # @param descriptors [Array<IO>]
    def take(facts, descriptors)
      descriptors.each { |io| io.close_on_exec = true }
      @background = facts["background"]
      Proxy.path = facts["proxy"]
      board = descriptors.shift if facts["board"]
      *counts, out, err = descriptors.shift(4)
      raise Error, "generation 0 may not open more files (RLIMIT_NOFILE)" unless descriptors.size == facts["listeners"].size + (facts["access_log"] ? 1 : 0)

      Fastrack.scoreboard = [Scoreboard.from_fd(board.fileno), @master] if board
      board&.close
      # That of a forked master.
      Log.repeats&.close
      Log.repeats = Repeats.new(*counts)
      ForkGuard.shared = [LastWords, Log.repeats]
      { STDOUT => out, STDERR => err }.each { |stream, file| stream.reopen(file).then { file.close } }
      LogFiles.learn([STDOUT, STDERR].zip(facts["logs"]).to_h.compact)
      @access_log = log_of(facts["access_log"], descriptors.shift) if facts["access_log"]
      take_listeners(facts, descriptors)
    end

    def take_listeners(facts, descriptors)
      pairs = facts["listeners"].zip(descriptors).map { |name, io| "#{name}=#{io.fileno}" }
      @supervised = facts["supervised"]
      @former = facts["former"].map { |text| FormerListener.parse(text) }
      descriptors.each { |io| io.autoclose = false }
      @all = InheritedListeners.described(pairs.join(";")).each { |listener| listener.own.close }
    end

    # @param path [String] by which workers open the log anew; empty for stdout
    # @return [IO]
    def log_of(path, file)
      return file.close.then { STDOUT } if path.empty?

      SafeFile.named(path, file).tap { |log| log.sync = true }
    rescue SystemCallError
      # The app's user cannot reach the path. The log stays open.
      file
    end
  end
end
