# frozen_string_literal: true

require_relative "../log"
require_relative "../process/last_words"
require_relative "lost_threads"
require_relative "mold"

module Fastrack
  # A promoted worker after its last request (`fastrack refork`). Workers share all that the mold has loaded and cached while it served.
  class PromotedMold < Mold
    # Seconds that native threads have to end. Ruby keeps the native thread of an ended Ruby thread for three seconds, to use it again.
    TIME_TO_END = 5

    # Collections after which an object is old. Minor collections of the children skip old objects.
    SURVIVALS = 4

    # Since Ruby 3.4 a full mark drops all method caches of code (cc_is_active in iseq.c is never true), so that running the code writes to
    # its pages. bench/marks measures this.
    FULL_MARK_DROPS_CACHES = RUBY_VERSION >= "3.4"

    # Returns when the mold is to end. The engine and the server's threads have ended before.
    #
    # @param worker [Worker] the worker that this process was
    # @param marked [Boolean] whether the worker has had a full mark since its fork
    # @param hijacked [Boolean] whether the app may hold sockets of clients
    # @yield before the mold waits for orders
    def run(worker, marked:, hijacked:)
      configuration.call_hook(:before_refork, @launcher, worker)
      return refuse(worker, "has hijacked connections, which a fork would have, too") if hijacked

      threads = foreign_threads
      return refuse(worker, "has native threads that a fork would lose (#{counted(threads)})") if threads.any?

      take_signals
      note_threads
      end_threads
      configuration.puma&.forget_forks
      configuration.call_hook(:before_fork, @launcher, worker)
      shrink(marked)
      yield
      tell(ControlChannel::MOLD)
      obey
    end

    private

    # For the log.
    def name = "the mold (pid #{Process.pid})"

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
        return others.filter_map { |id| thread_name(id) } if now > ends

        sleep 0.05
      end
    end

    # @return [String, nil] nil if the thread has just ended
    def thread_name(id)
      File.read("/proc/self/task/#{id}/comm").chomp
    rescue SystemCallError
      nil
    end

    def counted(names) = names.tally.map { |name, count| "#{count} #{name}" }.join(", ")

    def refuse(worker, reason)
      text = "worker #{worker.nr} (pid #{Process.pid}) #{reason}"
      Log.line("refork: nothing happens: #{text}")
      LastWords.say(text)
    end

    # Logs threads that workers will not have. The app has to start them.
    def note_threads
      lost = LostThreads.places
      return if lost.empty?

      Log.line("refork: workers will not have #{Log.count(lost.size, "thread")} of the app, unless after_fork starts them: #{lost.join(", ")}")
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

    # Collects young garbage before the fork, because each child would sweep the garbage and copy the pages. Makes no compaction, and no
    # full mark: both write to pages that the mold shares with other processes (on Ruby 3.3 a full mark writes to the code of all methods).
    # After a full mark as a worker, the mold has copied these pages already, and each child would soon make a full mark. Then a full mark
    # here costs nothing, and gives the heap room, unless this Ruby's full mark drops method caches. Fills the space between malloc's
    # blocks, because each child would copy a page to use it.
    def shrink(marked)
      SURVIVALS.times { GC.start(full_mark: false) }
      GC.start if marked && !FULL_MARK_DROPS_CACHES
      Fastrack.trim_heap
      Fastrack.fill_heap_holes
    end
  end
end
