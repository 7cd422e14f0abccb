# frozen_string_literal: true

require_relative "../http_journal"

module HttpApps
  # Starts processes in the middle of a request. Those that stay tell their pid, so that the spec can end them.
  class Forking
    # Longer than any spec waits, and not for ever.
    LONG = 60

    def initialize = @journal = HttpJournal.new

    def call(env)
      case env["PATH_INFO"]
      when "/system" then answer(system("true").inspect)
      when "/backtick" then answer(`echo from a command`)
      when "/spawn" then stay(spawn("sleep #{LONG}"))
      when "/fork" then stay(fork { sleep LONG })
      when "/fork-on" then fork_on
      # Goes on as a process that is none of the server's.
      when "/daemon" then Process.daemon(true, true) && @journal.write(Process.pid.to_s) && sleep(LONG)
      when "/fork-exit" then answer(wait_for(fork { exit }))
      when "/fork-raise" then answer(wait_for(fork { $stderr.reopen(File::NULL) && raise("in the child") }))
      # What happens to those who forget that fork without a block comes back twice.
      when "/fork-both-return" then fork.then { |child| Process.detach(child) && answer("from the parent") if child } || answer("from the child")
      else answer(Process.pid.to_s)
      end
    end

    private

    def answer(text) = [200, { "content-type" => "text/plain" }, [text]]

    def stay(pid)
      @journal.write(pid.to_s)
      Process.detach(pid)
      answer("started #{pid}")
    end

    # Forks in a background thread, whenever this one waits.
    def fork_on
      Thread.new do
        40.times { stay(fork { sleep LONG }) && sleep(0.002) }
        @journal.write("forked")
      end
      answer("forking")
    end

    def wait_for(pid)
      Process.wait(pid)
      $?.exitstatus.to_s
    end
  end
end
