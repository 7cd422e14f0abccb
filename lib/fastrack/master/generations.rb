# frozen_string_literal: true

require_relative "../error"
require_relative "../log"
require_relative "../process/guards"
require_relative "../process/held_child"
require_relative "../process/last_words"
require_relative "../process/memory"
require_relative "../memory/shareable"
require_relative "../upgrade/handing"
require_relative "../worker"
require_relative "../worker/control_channel"
require_relative "../worker/first_mold"
require_relative "hooks"
require_relative "leftovers"
require_relative "mold_handle"
require_relative "next_release"

module Fastrack
  # Generation 0 in the master's eyes: the process that loads the app and forks workers. A HUP starts another one beside it:
  #
  #     reading --its settings count--> loading --the app is loaded--> on trial --all workers are its--> settled
  #        \----------------------------- any failure -----------------------+--> ended; the old one and its workers serve on
  #
  # If nobody forks workers any more, generation 0 is made anew.
  class Generations
    include NextRelease

    # Seconds that a process has to exit once its channel has ended, at the server's start.
    TIME_TO_EXIT = 1

    # The state to restore when the new code fails: generation 0, the mold, and the workers' generation.
    Previous = Struct.new(:first, :mold, :generation)
    private_constant :Previous

    # @param launcher [Launcher]
    # @param app [#call, AppFile]
    # @param workers [Workers]
    # @param death_pipe [Array(IO, IO)] see Master
    # @param orders [Orders] notes the outcome of HUP
    # @param reload [Reload]
    # @yield when a HUP has failed
    def initialize(launcher, app, workers, death_pipe, orders, reload, &failed) # rubocop:disable Metrics/ParameterLists
      @launcher = launcher
      @app = app
      @workers = workers
      @death_pipe = death_pipe
      @orders = orders
      @reload = reload
      @failed = failed
      @not_before = 0.0
    end

    # Makes generation 0 at the start of the server, and waits until the app is loaded.
    #
    # @raise [StartFailed]
    def start
      prepared = @launcher.loaded? && prepare_master
      @launcher.loaded? ? LostThreads.tell : Fastrack.release_stack
      @workers.first = @launcher.first_reading ? take_first(@launcher.first_reading) : fork_mold(starting: true, prepared: prepared)
      await(@workers.first, &:loaded?)
    end

    # Has generation 0 start the plugins, at the start of the server, and waits until they have started.
    #
    # @raise [StartFailed]
    def start_plugins
      mold = @workers.first
      mold.start
      begin
        @launcher.hooks.within(0) { await(mold, &:plugins?) }
      rescue TimeLimit::Interrupted
        # Generation 0 leaves the plugin out, and the server ends in order.
        mold.terminate
        await(mold, &:plugins?)
      end
    end

    # Called when all workers serve for the first time.
    def booted
      @booted = true
      @workers.first&.event("after_booted")
    end

    # @return [Float, nil] monotonic seconds when #step has something to do
    def due_at = [(@not_before if lost?), @spare_at].compact.min

    # Whether workers of the old code are being replaced, or are about to be.
    def renewing? = replacing? || !@coming.nil? || !@reading.nil?

    # Whether workers of the old code are being replaced.
    def replacing? = !@previous.nil?

    # @param generation [Integer] of the workers
    # @param now [Float] monotonic seconds
    # @param plugins [Boolean] whether plugins may start
    # @return [Integer] generation of the workers from now on
    def step(generation, now, plugins:)
      remake if lost? && now >= @not_before
      generation = take_settings(generation) if @reading&.handing
      generation = adopt(generation) if @coming&.loaded?
      if @previous && (reason = failure(generation)) then generation = roll_back(reason)
      elsif @previous && @workers.complete?(generation) && proxy_follows? then settle(generation)
      end
      start_later_plugins if plugins
      forget_former(generation)
      end_first if @spare_at && now >= @spare_at
      generation
    end

    # @param handle [WorkerHandle]
    # @param exited [WorkerExit]
    def exited(handle, exited)
      return note_failure(exited) unless handle.first?
      return tell_spared if handle.equal?(@spared)

      words = LastWords.of(handle.pid)
      text = "#{handle.name} #{exited}#{": #{words}" if words}"
      if handle.equal?(@reading) then reading_failed(words || text)
      elsif handle.equal?(@coming) then loading_failed(words || text)
      elsif handle.equal?(@workers.first) then lose_first(text)
      elsif handle.equal?(@previous&.first) then @previous.first = nil
      end
    end

    # Tells generation 0 that the server has no workers any more.
    #
    # @param again [Boolean] whether the server is to start again
    def finish(again)
      @workers.each.select(&:first?).each { |mold| mold.loaded? ? mold.finish(again) : mold.stop }
    end

    # Called when all workers are a mold's. Generation 0 ends when workers fail less often than once in WorkerBootTimeout: if the mold
    # fails, too, a new generation 0 takes that long to fork successors. Generation 0 stays if it runs the app's plugins and hooks.
    def spare_first
      return if @workers.first.nil? || @launcher.configuration.puma&.at_home?

      @spare_at = time_to_spare
      return unless @failed_at && (@spare_at.nil? || @spare_at > now)

      Log.line("refork: #{@workers.first.name} stays, with #{ProcessMemory.format(@workers.first.memory&.private.to_i)} of its own, while workers " \
               "fail more often than once in #{format("%g", boot_timeout)} s (WorkerBootTimeout)")
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # For a master in which rackup has loaded the app. Closes the app's connections before generation 0 is forked, and makes memory
    # shareable.
    #
    # @return [Boolean] whether before_fork was called for the first worker
    def prepare_master
      @launcher.hooks.call_hook(:before_fork, Worker.new(0, @launcher, @app, nil)).tap { ShareableMemory.prepare }
    end

    # Lets the process that has read the ConfigFile go on.
    #
    # @param reading [FirstReading]
    # @return [MoldHandle]
    def take_first(reading)
      mold = MoldHandle.new(HeldChild.forked(reading.pid), reading.channel, now)
      mold.handing = reading.handing
      @launcher.redirect_output if reading.wants_logs?
      answer(mold)
      @workers.add(mold)
    end

    # @param starting [Boolean] see FirstMold
    # @param prepared [Boolean] see FirstMold
    # @return [MoldHandle]
    def fork_mold(starting: false, prepared: false)
      (ours, handing), (ports, lent), errors = starting ? [[], []] : pairs
      mold = ForkGuard.own_fork do
        kept = [@death_pipe.first, handing, ports].compact
        pid, channel = ControlChannel.fork(ControlChannel.pair, kept, @launcher.hooks.fork_limit) do |theirs|
          [ours, lent].each { |one| one&.close }
          next FirstMold.new(@launcher, @app, theirs, kept.first, starting: true, prepared: prepared).live if starting

          become_another(theirs, *kept, errors)
        end
        @workers.add(MoldHandle.new(HeldChild.forked(pid), channel, now)).tap { |mold| mold.handing, mold.errors = ours, errors }.tap(&:known)
      end
    rescue Exception # rubocop:disable Lint/RescueException -- it is raised again
      [ours, errors].each { |one| one&.close }
      raise
    else
      # The earlier one has the ports of the same code.
      @workers.first&.lend(lent) if lent
      mold
    ensure
      [handing, ports, lent].each { |one| one&.close }
    end

    # @return [Array] for a process beside generation 0: the pair of its settings, that of the ports, and the file for its errors
    def pairs
      # Without a scoreboard to inherit the process is a fork.
      errors = EarlyErrors.open unless @launcher.loaded? || @workers.scoreboard.fd.nil?
      [Handing.pair, UNIXSocket.pair(:SEQPACKET), errors]
    end

    # Handles messages of generation 0.
    #
    # @yieldparam mold [MoldHandle]
    # @yieldreturn [Boolean] whether the awaited one has come
    def await(mold)
      until yield mold
        ControlChannel.select([mold.channel], nil)
        # A message that is read is also handled.
        Thread.handle_interrupt(TimeLimit::Unfinished => :never) { @workers.receive_all(mold, mold.messages) }
        fail_start(mold) unless mold.connected?
      end
    end

    def fail_start(mold)
      ends = now + TIME_TO_EXIT
      sleep 0.001 until (exited = mold.reap(now)) || now > ends
      mold.kill("it has closed its channel") unless exited
      words = LastWords.of(mold.pid)
      text = "#{mold.name} #{exited || "has closed its channel while the app was loaded"}"
      Log.line(text, :error) unless words
      LastWords.say_to_old(words || text)
      raise StartFailed.new(words || text, exited&.status&.exitstatus || 1)
    end

    # Whether there is no process that forks workers, and none is coming.
    def lost? = @coming.nil? && @reading.nil? && @workers.source.nil?

    def delay
      @not_before = now + @launcher.configuration.err_respawn_interval
    end

    def boot_timeout = @launcher.configuration.worker_boot_timeout

    # @return [Float, nil] monotonic seconds when generation 0 may end; nil: never
    def time_to_spare
      return 0.0 if @failed_at.nil?

      @failed_at + boot_timeout if boot_timeout.positive?
    end

    def note_failure(exited)
      return unless exited.failed?

      @failed_at = now
      @spare_at &&= time_to_spare
    end

    def end_first
      @spare_at = nil
      first = @workers.first
      return unless first && @workers.mold

      @whole = whole
      @spared = first
      @workers.first = nil
      first.finish(false)
    end

    # Memory of all processes but the spared one.
    def whole = ProcessMemory.format(ProcessMemory.pss(@workers.each.reject { |one| one.equal?(@spared) }))

    def tell_spared
      Log.line("refork: #{@spared.name} has ended: #{Log.count(@workers.size, "worker")} #{@whole} -> #{whole}")
      @spared = nil
    end

    # @return [Integer] generation of the workers
    def adopt(generation)
      mold, @coming = @coming, nil
      return take_place(mold, generation) if mold.remake?

      @spare_at = nil
      # A mold's worker on trial has the number of the new generation, and the old code.
      @workers.end_trial(false)
      @previous = Previous.new(@workers.first, @workers.mold, generation)
      @workers.first, @workers.mold, @workers.forbidden_by = mold, nil, mold.forbids
      # New workers do not have removed addresses. So a worker that boots at this moment serves the clients there.
      @workers.each { |one| one.drain if one.booting? } if @launcher.open_listeners != @launcher.listeners
      Log.line("HUP: replacing #{Log.count(@workers.size, "worker")} (generation #{generation + 1})")
      generation + 1
    end

    # The earlier generation 0 has no channel any more.
    def take_place(mold, generation)
      @workers.first&.stop
      @workers.first = mold
      @launcher.settle
      generation
    end

    # @return [String, nil]
    def failure(generation)
      found, @renewal_failure = @renewal_failure, nil
      @workers.failure(generation) || found || @launcher.proxy&.failure
    end

    # @return [Integer] generation of the workers
    def roll_back(reason)
      return_to_previous.tap { fail_renewal(reason) }
    end

    # @return [Integer] generation of the workers
    def return_to_previous
      previous, @previous = @previous, nil
      @workers.first&.stop
      @workers.first, @workers.mold, @workers.forbidden_by = previous.first, previous.mold, previous.first&.forbids
      @workers.reject_newer(previous.generation)
      spare_first if previous.mold
      # Forgets failures of this generation, because the workers of the next HUP will be of the same generation.
      failure(previous.generation + 1)
      previous.generation
    end

    # Ends an earlier HUP that has not settled. A failure still restores the configuration from before that HUP.
    #
    # @return [Integer] generation of the workers
    def give_way(generation)
      renewed = @previous || (@coming && !@coming.remake?)
      @coming&.kill(ANOTHER)
      @coming = nil
      return generation unless renewed

      give_up(ANOTHER)
      @orders.superseded("HUP", ANOTHER)
      @previous ? return_to_previous : generation
    end

    # @return [Boolean] whether the proxy has the files and certificates of the new code
    def proxy_follows?
      proxy = @launcher.proxy or return true
      proxy.release
      proxy.settled?
    end

    def forget_former(generation)
      return if @previous || @launcher.proxy.nil? || @workers.each.any? { |one| one.worker? && one.generation < generation }

      @launcher.proxy.forget_former
    end

    # @param generation [Integer] of the workers that serve from now on
    def settle(generation)
      @previous.first&.finish(false)
      @previous = nil
      @orders.done("HUP")
      # Old workers still have removed listeners, and serve the clients there.
      @workers.each { |one| one.drain if one.generation < generation } if @launcher.settle.any?
    end

    # @return [Array<WorkerHandle>] molds that may be needed again
    public def previous_molds = @previous.to_a.grep(WorkerHandle)

    # The plugins of the new code start when those of the old code have stopped.
    def start_later_plugins
      mold = @workers.first
      return if mold.nil? || !mold.loaded? || mold.started? || @previous || @workers.each.any? { |one| one.first? && one != mold }

      mold.start(later: true)
      mold.event("after_booted") if @booted
    end

    def loading_failed(reason)
      remakes = @coming.remake?
      @coming = nil
      delay
      remakes ? @reload.undo(remake: true) : fail_renewal(reason)
    end

    def lose_first(text)
      @workers.first = nil
      Log.line(text, :error)
      @renewal_failure = text if @previous
    end

    def fail_renewal(reason)
      @coming&.kill(reason)
      @coming = nil
      # The line is for the log of the code that serves.
      @reload.undo
      give_up(reason)
      @orders.failed("HUP", reason)
      @failed.call
    end

    def give_up(reason) = Log.line("HUP: the new code is given up: #{reason}; the old code serves on", :error)
  end
end
