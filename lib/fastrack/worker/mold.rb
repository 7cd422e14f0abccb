# frozen_string_literal: true

require_relative "../error"
require_relative "../log"
require_relative "../process/guards"
require_relative "../process/last_words"
require_relative "../process/orphans"
require_relative "../process/signal_queue"
require_relative "../text"
require_relative "control_channel"

module Fastrack
  # What a worker is that was promoted (`fastrack refork`), after its last request: the process that workers are forked from instead
  # of the master, and that serves nobody. They share with it what it has loaded and cached while it served.
  #
  # It ends with its channel to the master.
  class Mold
    # Seconds that native threads have to end. Ruby keeps those of its threads for three, to use them again.
    TIME_TO_END = 5

    # Collections that make an object old, which later ones of the children then skip.
    SURVIVALS = 4

    # Since Ruby 3.4 a full mark forgets all methods that code has looked up (cc_is_active in iseq.c is never true): running that code again
    # writes to it. bench/marks measures it.
    FORGETFUL = RUBY_VERSION >= "3.4"

    # @param launcher [Launcher]
    # @param app [#call] as the master has it
    # @param channel [ControlChannel] to the master
    # @param death_pipe [IO] at end of file when the master is dead
    def initialize(launcher, app, channel, death_pipe)
      @launcher = launcher
      @app = app
      @channel = channel
      @death_pipe = death_pipe
      @scoreboard, @master = Fastrack.scoreboard
    end

    # Returns when the mold is to end. Nothing of the server's runs beside it any more: no engine, no threads.
    #
    # @param worker [Worker] what this process was
    # @param marked [Boolean] whether it has had a full mark since its fork
    # @yield when it is about to wait for orders
    def run(worker, marked:)
      @launcher.configuration.call_hook(:before_refork, @launcher, worker)
      threads = foreign_threads
      return refuse(worker, threads) if threads.any?

      # The children of this process are to be workers: all that is theirs to handle is queued until they do.
      @signals = SignalQueue.new([*Worker::STOP_SIGNALS, *Worker::MASTER_SIGNALS, *OWN_SIGNALS])
      @signals.install
      ForkGuard.install { [@signals, @death_pipe, @channel] }
      Process.setproctitle(@launcher.title("mold"))
      note_threads
      @launcher.configuration.call_hook(:before_fork, @launcher, worker)
      shrink(marked)
      yield
      @channel.write(ControlChannel::MOLD)
      obey
    end

    private

    OWN_SIGNALS = %w[USR1 USR2 URG PWR].freeze
    private_constant :OWN_SIGNALS

    # Threads of native code: a fork would leave them out, with what they hold.
    #
    # @return [Array<String>] their names
    def foreign_threads
      ends = now + TIME_TO_END
      loop do
        # Ruby 3.1 has the main thread's number from before the fork.
        own = [Process.pid, *Thread.list.map(&:native_thread_id)]
        others = Dir.children("/proc/self/task").map(&:to_i) - own
        # Since Ruby 3.3 there is always one of its own.
        return [] if others.size <= (RUBY_VERSION >= "3.3" ? 1 : 0)
        return others.map { |id| File.read("/proc/self/task/#{id}/comm").chomp } if now > ends

        sleep 0.05
      end
    end

    def refuse(worker, threads)
      text = "worker #{worker.nr} (pid #{Process.pid}) has native threads that a fork would leave out " \
             "(#{threads.tally.map { |name, count| "#{count} #{name}" }.join(", ")})"
      Log.line("refork: nothing happens: #{text}")
      LastWords.say(text)
    end

    # Ruby's own and Active Record's begin anew in a forked process, and so do those that say so, as for Puma. Others the app has to begin.
    def note_threads
      lost = Thread.list.reject do |thread|
        thread == Thread.current || thread.thread_variable_get(:fork_safe) || thread.thread_variable_get(:"\0__detached_thread__")
      end
      return if lost.empty?

      names = lost.map { |thread| Text.utf8(thread.name || thread.inspect.b[/\S+:\d+(?= )/].to_s) }
      Log.line("refork: workers will be without #{Log.count(lost.size, "thread")} of the app's, unless after_fork begins them: #{names.join(", ")}")
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # Garbage would be swept in each child, in pages of its own. Young objects are enough: what the mold writes to it does not share with
    # the master any more, and a full mark writes to the code of all methods (Ruby 3.3), compaction to nearly everything. But where the
    # worker had a full mark it has the code for itself already, and its children would have one soon, each for itself: another one
    # here costs nothing, and gives their heaps room: unless they would have to look up all methods again for it. What is free between two
    # blocks of malloc would also cost each child a page.
    def shrink(marked)
      SURVIVALS.times { GC.start(full_mark: false) }
      GC.start if marked && !FORGETFUL
      Fastrack.trim_heap
      Fastrack.fill_heap_holes
    end

    def obey
      loop do
        ready = ControlChannel.select([@signals.reader, @channel, @death_pipe], nil)
        handle_signals
        next unless ready.include?(@channel) || ready.include?(@death_pipe)

        order, descriptors = @channel.take_order
        return if order.nil?

        fork_worker(order.split.map(&:to_i), descriptors)
      end
    end

    # It is the end of the channel that ends it.
    def handle_signals
      @signals.clear_wakeups
      while (name = @signals.shift)
        LogFiles.reopen if name == Worker::LOG_SIGNAL
        Log.line("the mold (pid #{Process.pid}) waits for orders") if name == Worker::BACKTRACE_SIGNAL
      end
    end

    # Without an answer that is a pid the master forks the worker itself.
    def fork_worker((nr, slot), descriptors)
      worker = Worker.new(nr, @launcher, @app, slot && [@scoreboard, slot])
      @launcher.configuration.call_hook(:before_fork, @launcher, worker)
      @channel.answer(fork_twice { begin_worker(worker, *descriptors) })
    rescue StandardError, ScriptError => e
      Log.exception("the mold cannot fork worker #{nr}", e)
      @channel.answer(0)
    ensure
      descriptors.each(&:close)
    end

    # The child of a child whose end makes it the master's, which is a subreaper.
    #
    # @yield in the worker
    # @return [Integer] its pid
    def fork_twice(&work)
      reader, writer = IO.pipe
      between = ForkGuard.own_fork do
        ControlChannel.fork_child do
          writer.write(ForkGuard.own_fork { ControlChannel.fork_child { [reader, writer].each(&:close).then(&work) } })
          Process.exit!(0)
        end
      end
      writer.close
      pid = reader.read.to_i
      # Only then is the worker the master's.
      Process.wait(between)
      pid
    ensure
      [reader, writer].each(&:close)
    end

    # What has the master's channel goes on as any worker does.
    #
    # @param socket [Socket] to the master
    # @param descriptors [Array<IO>] of the listeners and of the shared queue
    def begin_worker(worker, socket, *descriptors)
      pending = @signals.size
      theirs = ControlChannel.new(socket)
      ForkGuard.close_descriptors(keep: [@death_pipe])
      @launcher.take_over(descriptors, @master)
      theirs.await_known
      worker.live(theirs, @signals, pending, @death_pipe)
    end
  end

  # Has the mold fork a worker, which becomes a child of this process's.
  class MoldFork
    # Seconds for the answer.
    TIME = 5

    # @param launcher [Launcher]
    def initialize(launcher)
      @launcher = launcher
    end

    # @param mold [WorkerHandle]
    # @param worker [Worker] as it would be forked here
    # @param pair [Array(ControlChannel, ControlChannel)] the second is the worker's
    # @return [Array(Integer, ControlChannel)] its pid, and this end
    # @raise [StandardError] when there is no worker, or nobody knows: then it ends, as its channel does
    def call(mold, worker, pair)
      ours, theirs = pair
      mold.channel.order([worker.nr, *worker.scoreboard_entry&.last].join(" "), [theirs.to_io, *descriptors])
      pid = mold.channel.await_answer(TIME)
      raise Error, "it could not fork" unless pid.positive?

      Orphans.own(pid)
      [pid, ours]
    rescue StandardError, TimeLimit::Unfinished
      ours.close
      raise
    ensure
      theirs.close
    end

    private

    # The mold has none of its own: nothing but the master holds the port.
    def descriptors
      [*@launcher.listeners, *@launcher.queue&.fds].map { |one| IO.for_fd(one.is_a?(Integer) ? one : one.fileno, autoclose: false) }
    end
  end
end
