# frozen_string_literal: true

require_relative "../log"
require_relative "child"
require_relative "deadlines"
require_relative "settings"

module Fastrack
  module Proxy
    # Starts, watches and stops the proxy for the master, which never waits for it: #step looks at the processes, and does what is due.
    #
    #     booting --ready--> serving --stop--> ending --> ended
    #
    # One process serves. Beside it another one boots if a HUP has named other listeners, and earlier ones finish their requests, and linger
    # for streams and sockets as a worker does.
    class Supervisor
      # Least seconds between two starts; ErrRespawnInterval may be longer.
      LEAST_PAUSE = 0.5

      # Reads of a process that has ended: as much as a pipe holds.
      LAST_READS = 65_536 / LineReader::PIECE

      # @return [Float, nil] monotonic seconds when #step has something to do
      attr_reader :due_at

      # @param launcher [Launcher]
      def initialize(launcher)
        @launcher = launcher
        @deadlines = Deadlines.new
        @certificate_files = CertificateFiles.new(Proxy.user(configuration))
        @ending = []
        @former = []
        @not_before = 0.0
      end

      # Starts the first proxy if the configuration asks for one. If it does not become ready, #step raises.
      #
      # @raise [Error] when there is no process
      def start
        @wanted = wanted?
        @next = spawn(current_settings, strict: true) if @wanted
      rescue SystemCallError => e
        raise Error, "the proxy does not start: #{e.message}"
      end

      # @return [Array<IO>] what the master waits for
      def readers = children.map(&:output).reject(&:closed?)

      # @return [Array<IO>] descriptors that forked processes must not keep
      def descriptors = [*children.flat_map(&:descriptors), *@certificate_files.descriptors, @upstream].compact

      # @return [Array<Integer>] pids of all proxies
      def pids = children.map(&:pid)

      # Whether nobody waits for the proxy: it serves with the settings of the last HUP, or is not asked for.
      def settled? = !@wanted || (@next.nil? && @child && !@child.asked?)

      # Whether the proxy's clients are served.
      def serves? = !@wanted || state == "serving"

      # @return [Array(Integer, String, String), nil] pid (0: there is no process), state and counters (in JSON), for the status; nil when no
      #   option asks for a proxy
      def row = ([(@child || @next)&.pid.to_i, state, counts] if @wanted || @child)

      # Whether a proxy that is to end still has clients.
      def ending? = @ending.any?

      # @return [String, nil] why the proxy has not taken the settings of the last HUP
      def failure = @failure || @child&.refusal

      # Called when the settings of a HUP count, or no longer do: a running proxy gets new settings; a new one takes over if there are other
      # listeners. Files and certificates stay those of the code that serves.
      def reload
        @released = false
        @certificate_files.expire
        renew
      end

      # Called when all workers have the new code of a HUP: files and certificates follow.
      def release
        return if @released

        @released = true
        renew
      end

      # Called when a HUP has settled. Workers of the old code may still serve.
      #
      # @param before [Configuration] of the old code
      def settle(before)
        @former |= [before]
        @released = false
        @certificate_files.keep(@launcher.listeners.map(&:to_s))
      end

      # Called when no worker of former code is left.
      def forget_former
        return if @former.empty?

        @former = []
        renew
      end

      private def renew
        @failure = nil
        @wanted = wanted?
        return dismiss unless @wanted

        settings = current_settings
        fits = ->(child) { child && child.settings.fixed == settings.fixed }
        end_later(@next) && @next = nil unless fits.(@next)
        return @next.apply(settings) if @next
        return @child.apply(settings) if fits.(@child)

        @next = spawn(settings, strict: true)
      rescue Error, SystemCallError => e
        @failure = e.message
        @not_before = now + pause
        log_failure(e.message)
      end

      # Called once the master has reopened its log files. The proxy gets their new descriptors.
      def reopen_logs
        settings = current_settings
        children.each { |child| child.apply(settings) }
      rescue Error, SystemCallError => e
        Log.line("the proxy has the logs from before: #{e.message}", :error)
      end

      # @param now [Float] monotonic seconds
      # @return [Float] seconds that the end of the proxy has taken of GracefulTimeout
      def time_taken(now) = @stop_at ? now - @stop_at : 0.0

      # Reads what the processes say, replaces one that has ended, and ends one whose time is over.
      #
      # @param now [Float] monotonic seconds
      # @raise [Error] when the server's first proxy does not start
      def step(now)
        children.each { |child| child.read(now) }
        children.select(&:ended?).each { |child| lose(child, now) }
        take_over if @next&.ready?
        start_again if lost? && now >= @not_before
        look(now)
        @postponed&.postpone(now) if @stop_at && @ending.all?(&:lingers?)
        limits = @deadlines.step(now, configuration, booting: @next, serving: @child, ending: @ending)
        @due_at = [*limits, (@not_before if lost?), @look_at, (now + LEAST_PAUSE if children.count(&:flush).positive?)].compact.min
      end

      # Ends the proxy before the workers: these serve until the proxy has finished its requests, unless another server's workers do.
      #
      # @param kind [Class] of the shutdown that is to begin
      # @param shutdown [Shutdown, nil] the present one
      # @param replaced [Boolean] whether another server serves on
      # @return [Class] the kind of shutdown that can begin now
      def before_shutdown(kind, shutdown, replaced: false)
        return kind if kind == Shutdown::Drain || !stop(replaced, shutdown.nil?)
        return kind.tap { @ending.each(&:kill) } if kind == Shutdown::Quick

        ends = (@ending.filter_map(&:kill_at).max || now) + Ending::TIME_TO_END
        return kind if kind != Shutdown::Graceful || replaced || @ending.all?(&:lingers?) || now >= ends

        # #step puts the end forward again when the proxy has finished its requests.
        @postponed = shutdown if shutdown.is_a?(Shutdown::Drain)
        @postponed&.postpone(ends)
        shutdown ? shutdown.class : Shutdown::ProxyFirst
      end

      # Called at the end of the master. A proxy that still runs reads the end of file, and ends.
      def close = [*children, *@certificate_files.descriptors, @upstream].compact.each(&:close)

      private

      def children = [@child, @next, *@ending].compact

      def configuration = @launcher.configuration

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      def wanted? = configuration.proxy? && @launcher.listeners.any? { |listener| listener.role == :edge }

      # Whether no process serves, and none is coming.
      def lost? = @wanted && @child.nil? && @next.nil?

      def state
        return @next ? "booting" : "dead" unless @child

        @deadlines.silent? ? "silent" : "serving"
      end

      def current_settings
        @upstream ||= Proxy.open_path
        Settings.new(configuration, @launcher.listeners, @launcher.access_log, @upstream, files: @certificate_files, releases: releases)
      end

      # Passes files of certificates on that have changed.
      def look(now)
        return @look_at = nil if !@wanted || @certificate_files.empty?
        return if @look_at && now < @look_at

        changed = @look_at && @certificate_files.changed?
        @look_at = now + CertificateFiles::PAUSE
        [@child, @next].compact.each { |child| child.apply(current_settings) } if changed
      rescue Error, SystemCallError => e
        Log.repeated("the proxy: certificates", :error) { "the certificates stay as they are: #{e.message}" }
      end

      # @return [Array<Configuration>] those of the code that serves; the first one's is served by most workers
      def releases
        before = @launcher.before
        latest = @released ? [configuration, before] : [before, configuration]
        [*latest, *@former].compact.uniq
      end

      def pause = [configuration.err_respawn_interval, LEAST_PAUSE].max

      def spawn(settings, strict:) = Child.new(settings, Proxy.user(configuration), now, strict: strict)

      def start_again
        @next = spawn(current_settings, strict: !@proven)
      rescue Error, SystemCallError => e
        fail_boot(e.message, now)
      end

      def take_over
        old, @child, @next = @child, @next, nil
        @proven = true
        end_later(old) if old
      end

      # @param child [Child] one that has ended
      def lose(child, now)
        LAST_READS.times { child.read(now) }
        child.close
        return if @ending.delete(child)

        if child.equal?(@next)
          @next = nil
          fail_boot(child.error || "it #{child.ending}", now)
        else
          @child = nil
          @not_before = [now, child.spawned_at + pause].max
          Log.repeated("the proxy", :error) { "the proxy (pid #{child.pid}) #{child.ending}: starting another one" }
        end
      end

      # After a failure the next start waits, as a worker's does.
      def fail_boot(reason, now)
        raise Error, "the proxy does not start: #{reason}" unless @proven

        @failure = reason
        @not_before = now + pause
        log_failure(reason)
      end

      def log_failure(reason)
        then_ = @child ? "the old one serves on" : "trying again every #{format("%g", pause)} s"
        Log.repeated("the proxy: #{reason.gsub(/\d+/, "")}", :error) { "the proxy does not start: #{reason}; #{then_}" }
      end

      # Ends all processes: no option asks for the proxy any more, or the server stops.
      def dismiss(ending = Ending.replaced(configuration))
        (@stop_at ? children : [@child, @next].compact).each { |child| end_later(child, ending) }
        @upstream&.close
        @child = @next = @upstream = nil
      end

      # Has the proxy finish its requests and accept no others.
      #
      # @param replaced [Boolean] see #before_shutdown
      # @param leaves [Boolean] whether the listeners are left to another server, as after QUIT
      # @return [Boolean] whether a proxy still runs
      def stop(replaced, leaves)
        @wanted = false
        unless @stop_at
          @stop_at = now
          other = replaced ? :ours : (:supervised if leaves && @launcher.supervised?)
          dismiss(Ending.stopped(configuration, other: other, sockets: leaves))
          # New clients are refused rather than kept waiting.
          @launcher.listeners.each { |listener| listener.close if listener.role == :edge }
        end
        @due_at = now
        @ending.any?
      end

      # A process that boots has no requests to finish.
      def end_later(child, ending = Ending.replaced(configuration))
        return true unless child

        # One proxy may linger. An earlier one ends its streams and sockets now.
        @ending.each { |one| one.stop(Ending.replaced(configuration, linger: 0.0), now) } unless @ending.include?(child)
        child.ready? ? child.stop(ending, now) : child.kill
        @due_at = now
        @ending |= [child]
      end

      def counts
        return @child&.stats.to_s if @ending.empty?

        JSON.generate(JSON.parse(@child&.stats || "{}").merge(lingering: @ending.map(&:lingering_row)))
      end
    end
  end
end
