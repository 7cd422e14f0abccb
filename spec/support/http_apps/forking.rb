# frozen_string_literal: true

require_relative "../http_journal"

module HttpApps
  # Starts processes in the middle of a request. Those that stay tell their pid, so that the spec can end them.
  class Forking
    # Longer than any spec waits, and not for ever.
    LONG = 60

    # How often a background thread forks.
    MANY = 40

    def initialize
      @journal = HttpJournal.new
    end

    def call(env)
      case env["PATH_INFO"]
      when "/system" then answer(system("true").inspect)
      when "/backtick" then answer(`echo from a command`)
      when "/spawn" then stay(spawn("sleep #{LONG}"))
      when "/fork" then stay(fork { sleep LONG })
      when "/fork-on" then fork_on
      when "/daemon" then Process.daemon(true, true) && stay_daemon
      when "/fork-exit" then answer(wait_for(fork { exit }))
      when "/fork-raise" then answer(wait_for(fork { quietly { raise "in the child" } }))
      when "/fork-both-return" then both_return
      else answer(Process.pid.to_s)
      end
    end

    private

    def answer(text)
      [200, { "content-type" => "text/plain" }, [text]]
    end

    def stay(pid)
      @journal.write(pid.to_s)
      Process.detach(pid)
      answer("started #{pid}")
    end

    # Goes on as a process that is none of the server's.
    def stay_daemon
      @journal.write(Process.pid.to_s)
      sleep LONG
    end

    # Forks in a background thread, whenever this one waits.
    def fork_on
      Thread.new do
        MANY.times do
          stay(fork { sleep LONG })
          sleep 0.002
        end
        @journal.write("forked")
      end
      answer("forking")
    end

    def wait_for(pid)
      Process.wait(pid)
      $?.exitstatus.to_s
    end

    def quietly
      $stderr.reopen(File::NULL)
      yield
    end

    # What happens to those who forget that fork without a block comes back twice.
    def both_return
      child = fork
      Process.detach(child) if child
      answer(child ? "from the parent" : "from the child")
    end
  end
end
