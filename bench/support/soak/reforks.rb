# frozen_string_literal: true

module Soak
  # Acts on a server that reforks, see Acts. The mold serves nobody, so that its end excuses nothing; nor does a refork.
  module Reforks
    # How often each comes, in proportion.
    WEIGHTS = { refork: 3, refork_and: 2, kill_mold: 2, stop_mold: 1, kill_trial: 2 }.freeze

    # Signals that may come in the middle.
    MEANWHILE = %i[HUP USR1 TTIN TTOU URG].freeze

    # Seconds for the mold: what the candidate has begun may last as long as a request may. There may be none, as the log says.
    TIME_FOR_MOLD = 10
    # Seconds for the first worker of it.
    TIME_FOR_TRIAL = 5
    private_constant :MEANWHILE, :TIME_FOR_MOLD, :TIME_FOR_TRIAL

    private

    def refork
      @record.act("refork") do
        @server.signal(:URG)
        pause(@random.rand * 5)
      end
    end

    def refork_and
      @record.act("refork_and") do
        @server.signal(:URG)
        pause(@random.rand * 3)
        name = MEANWHILE.sample(random: @random)
        @server.signal(name)
        # Only a HUP brings the number of workers back.
        pause(1.0) && @server.signal(:HUP) if %i[TTIN TTOU].include?(name)
      end
    end

    def kill_mold
      @record.act("kill_mold") do
        mold = reforked or next
        pause(@random.rand * 3)
        @server.signal(:KILL, to: mold)
      end
    end

    # The master notices at the next fork.
    def stop_mold
      @record.act("stop_mold") do
        mold = reforked or next
        @server.signal(:STOP, to: mold)
        signal_worker(:TERM)
        @server.await("the stopped mold #{mold} stays") { !Processes.now.alive?(mold) }
      end
    end

    def kill_trial
      @record.act("kill_trial", *Acts::BROKEN) do
        reforked or next
        before = @server.workers
        trial = within(TIME_FOR_TRIAL) { (@server.workers - before).first } or next
        pause(@random.rand * 0.5)
        @server.signal(:KILL, to: trial)
        await_end(trial)
      end
    end

    # A worker that the mold has just forked has its title for a moment, too.
    #
    # @return [Integer, nil] pid of a new mold, which was a worker
    def reforked
      before = @server.workers
      @server.signal(:URG)
      within(TIME_FOR_MOLD) { (@server.molds & before).first }
    end

    def within(seconds)
      deadline = Soak.now + seconds
      until (value = yield)
        return if Soak.now > deadline

        sleep 0.02
      end
      value
    end
  end
end
