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
  # A promoted worker after its last request (`fastrack refork`). The mold forks workers in place of the master, and serves nobody. Workers
  # share all that the mold has loaded and cached while it served.
  #
  # The mold ends with its channel to the master.
  class Mold
    # Seconds that native threads have to end. Ruby keeps the native thread of an ended Ruby thread for three seconds, to use it again.
    TIME_TO_END = 5

    # Collections after which an object is old. Minor collections of the children skip old objects.
    SURVIVALS = 4

    # Since Ruby 3.4 a full mark drops all method caches of code (cc_is_active in iseq.c is never true), so that running the code writes to
    # its pages. bench/marks measures this.
    FORGETFUL = RUBY_VERSION >= "3.4"

    # @param launcher [Launcher]
    # @param app [#call] the app without middleware of a puma.rb
    # @param channel [ControlChannel] to the master
    # @param death_pipe [IO] at end of file when the master is dead
    def initialize(launcher, app, channel, death_pipe)
      @launcher = launcher
      @app = app
      @channel = channel
      @death_pipe = death_pipe
      @scoreboard, @master = Fastrack.scoreboard
    end

    # Returns when the mold is to end. The engine and the server's threads have ended before.
    #
    # @param worker [Worker] the worker that this process was
    # @param marked [Boolean] whether the worker has had a full mark since its fork
    # @param hijacked [Boolean] whether the app may hold sockets of clients
    # @yield before the mold waits for orders
    def run(worker, marked:, hijacked:)
      @launcher.configuration.call_hook(:before_refork, @launcher, worker)
      return refuse(worker, "has hijacked connections, which a fork would have, too") if hijacked

      threads = foreign_threads
      return refuse(worker, "has native threads that a fork would lose (#{counted(threads)})") if threads.any?

      # Children of this process become workers. Signals for them are queued until they handle their own.
      @signals = SignalQueue.new([*Worker::STOP_SIGNALS, *Worker::MASTER_SIGNALS, *OWN_SIGNALS])
      @signals.install
      ForkGuard.install { [@signals, @death_pipe, @channel] }
      Process.setproctitle(@launcher.title("mold"))
      note_threads
      end_threads
      @launcher.configuration.call_hook(:before_fork, @launcher, worker)
      shrink(marked)
      yield
      @channel.write(ControlChannel::MOLD)
      obey
    end

    private

    OWN_SIGNALS = %w[USR1 USR2 URG PWR].freeze
    private_constant :OWN_SIGNALS

    # Native threads of libraries. A fork would lose them, and keep their locks locked.
    #
    # @return [Array<String>] names of the threads
    def foreign_threads
      ends = now + TIME_TO_END
      loop do
        # On Ruby 3.1 the main thread has its id from before the fork.
        own = [Process.pid, *Thread.list.map(&:native_thread_id)]
        others = Dir.children("/proc/self/task").map(&:to_i) - own
        # Since Ruby 3.3 the process has one more native thread of Ruby's.
        return [] if others.size <= (RUBY_VERSION >= "3.3" ? 1 : 0)
        return others.map { |id| File.read("/proc/self/task/#{id}/comm").chomp } if now > ends

        sleep 0.05
      end
    end

    def counted(names) = names.tally.map { |name, count| "#{count} #{name}" }.join(", ")

    def refuse(worker, reason)
      text = "worker #{worker.nr} (pid #{Process.pid}) #{reason}"
      Log.line("refork: nothing happens: #{text}")
      LastWords.say(text)
    end

    # Logs threads that workers will not have. Ruby's own threads, Active Record's, and threads marked `fork_safe` as for Puma start again
    # in a forked process. The app has to start others.
    def note_threads
      lost = Thread.list.reject do |thread|
        thread == Thread.current || thread.thread_variable_get(:fork_safe) || thread.thread_variable_get(:"\0__detached_thread__")
      end
      return if lost.empty?

      names = lost.map { |thread| Text.utf8(thread.name || thread.inspect.b[/\S+:\d+(?= )/].to_s) }
      Log.line("refork: workers will not have #{Log.count(lost.size, "thread")} of the app, unless after_fork starts them: #{names.join(", ")}")
    end

    # Ends the app's threads. Beside those of the workers, a reporter would report twice, and a scheduler would run each job twice.
    def end_threads
      others = Thread.list - [Thread.current]
      others.each(&:kill)
      ends = now + TIME_TO_END
      others.each { |thread| thread.join([ends - now, 0].max) }
    rescue StandardError, ScriptError
      # `join` raises the exception that has ended a thread.
      retry
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # Collects young garbage before the fork, because each child would sweep it and copy the pages. The mold makes no full mark and no
    # compaction: both write to pages that the mold shares with the master, a full mark on Ruby 3.3 to the code of all methods. After a full
    # mark in the worker these pages are copied already, and each child would soon make a full mark, too. Then a full mark here costs
    # nothing, and gives the heap room; except on Rubies whose full mark drops method caches. Fills the space between malloc's blocks,
    # because each child would copy a page to use it.
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

        order = @channel.take_order or return
        fork_worker(order)
      end
    end

    # Handles signals. None ends the mold, which ends with its channel.
    def handle_signals
      @signals.clear_wakeups
      while (name = @signals.shift)
        LogFiles.reopen if name == Worker::LOG_SIGNAL
        Log.line("the mold (pid #{Process.pid}) waits for orders") if name == Worker::BACKTRACE_SIGNAL
      end
    end

    # Answers with the worker's pid. For any other answer the master forks the worker itself.
    def fork_worker(order)
      worker = Worker.new(order.nr, @launcher, @app, order.slot && [@scoreboard, order.slot])
      @launcher.configuration.call_hook(:before_fork, @launcher, worker)
      @channel.forked(order, fork_twice { begin_worker(worker, *order.descriptors) })
    rescue StandardError, ScriptError => e
      Log.exception("the mold cannot fork worker #{order.nr}", e)
      @channel.forked(order, 0)
    ensure
      order.descriptors.each(&:close)
    end

    # Forks a child of a child. When the child between them exits, the master becomes the parent, because it is a subreaper.
    #
    # @yield in the new worker
    # @return [Integer] the worker's pid
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
      # After this wait the master is the worker's parent.
      Process.wait(between)
      pid
    ensure
      [reader, writer].each(&:close)
    end

    # Makes the process a worker like any other, with a channel to the master.
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

  # Makes the mold fork a worker, which becomes a child of this process.
  class MoldFork
    # Seconds that the mold has for its answer.
    ANSWER_TIME = 5

    # @param launcher [Launcher]
    def initialize(launcher)
      @launcher = launcher
    end

    # @param mold [WorkerHandle]
    # @param worker [Worker] the same object as for a fork of the master
    # @param pair [Array(ControlChannel, ControlChannel)] the second channel is the worker's
    # @yieldparam message [String] each message of the mold that is no answer
    # @return [Array(Integer, ControlChannel)] the worker's pid, and this process's channel
    # @raise [StandardError] when there is no worker, or none that is known; an unknown worker ends with its channel
    def call(mold, worker, pair, &other)
      ours, theirs = pair
      pid = mold.channel.order(worker.nr, worker.scoreboard_entry&.last, [theirs.to_io, *descriptors], ANSWER_TIME, &other)
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

    # Descriptors for the worker, since the mold has none: only the master and workers hold the port.
    def descriptors
      [*@launcher.listeners, *@launcher.queue&.fds].map { |one| IO.for_fd(one.is_a?(Integer) ? one : one.fileno, autoclose: false) }
    end
  end
end
