# frozen_string_literal: true

require_relative "../error"
require_relative "../log"
require_relative "../upgrade/seat"
require_relative "../worker/first_mold"
require_relative "process_setup"

module Fastrack
  # The part of Generations for a generation 0 that reads the ConfigFile of its release, and waits for the master to take its settings over.
  # Meanwhile nothing changes: an earlier HUP that has not settled goes on.
  module NextRelease
    ANOTHER = "another HUP has come"
    private_constant :ANOTHER

    # Makes another generation 0 beside the current one, because of a HUP. An earlier HUP that has not settled ends once the settings of this
    # one count.
    def renew
      pass_over if @reading
      @orders.set_apart("HUP")
      ProcessSetup.find_directory(@launcher.configuration)
      @reading = fork_mold
    rescue Error => e
      change_nothing(e.message)
    rescue Exception => e # rubocop:disable Lint/RescueException -- a wrapper of Process._fork, for example
      give_up_reading("it cannot be started: #{Error.reason(e)}")
    end

    # @return [Array<Handing>] what the master waits for
    def readers = [@reading&.handing].compact

    private

    def remake
      @reading = fork_mold.tap { |mold| mold.remake = true }
    rescue Exception => e # rubocop:disable Lint/RescueException -- as above
      delay
      Log.exception("generation 0 cannot be started", e)
    end

    # Makes this process a generation 0 beside another one. Without a scoreboard to inherit it is a fork: Bundler's changes of the master
    # stay, and the rest is new.
    #
    # @return [Integer] the exit status
    def become_another(channel, death_pipe, handing, ports, errors)
      return Seat.exec(@launcher, channel, death_pipe, handing, ports, errors) if errors

      LentPorts.expect(ports)

      # Before the ConfigFile is read.
      @launcher.configuration.user&.switch
      seat = Seat.new(master: Process.ppid, channel: channel, death_pipe: death_pipe, handing: handing, subreaper: @launcher.subreaper?,
                      background: @launcher.background?)
      FirstMold.new(@launcher, @app, channel, death_pipe, starting: false, seat: seat).live
    end

    # Reads the settings, and lets the process go on with them.
    #
    # @return [Integer] generation of the workers
    def take_settings(generation)
      data = @reading.handing.read
      data ? use(data, generation) : generation
    rescue EOFError
      # The process has ended, or is about to.
      @reading.handing = @reading.handing.close
      generation
    rescue Error => e
      refuse(e.message)
      generation
    end

    # @return [Integer] generation of the workers
    def use(data, generation)
      reason = @reload.run(data, remake: @reading.remake?)
      return refuse(reason).then { generation } if reason

      mold, @reading = @reading, nil
      mold.errors&.close
      @orders.rejoin
      generation = give_way(generation) unless mold.remake?
      @coming = mold
      answer(mold)
      generation
    end

    # A process that has no answer ends.
    def answer(mold)
      mold.handing.put(*Seat.answer(@launcher))
    rescue SystemCallError
      nil
    ensure
      mold.handing = mold.handing.close
    end

    # Another HUP has come while generation 0 reads the ConfigFile.
    def pass_over
      @reading.kill(ANOTHER)
      return if leave_reading.remake?

      give_up(ANOTHER)
      @orders.refuse_apart(ANOTHER)
    end

    # @return [MoldHandle] the process, whose settings the master waits for no longer. Those that are forked later have no copy of its socket
    def leave_reading
      mold, @reading = @reading, nil
      mold.errors&.close
      mold.handing &&= mold.handing.close
      mold
    end

    # The settings cannot be used.
    def refuse(reason)
      mold = leave_reading
      mold.stop
      return delay.then { Log.line("generation 0 cannot be made anew: #{reason}", :error) } if mold.remake?

      change_nothing(reason)
    end

    def change_nothing(reason)
      Log.line("HUP changes nothing: #{reason}", :error)
      end_reading(reason)
    end

    def reading_failed(reason)
      refused = refusal
      return refuse(refused) if refused

      early = @reading.errors&.log
      reason = "#{reason}: #{early}" if early
      delay
      leave_reading.remake? ? Log.line("generation 0 cannot be made anew: #{reason}", :error) : give_up_reading(reason)
    end

    # @return [String, nil] the reason that the process has given before its end
    def refusal
      data = @reading.handing&.read
      @reload.run(data) if data && data["refused"]
    rescue EOFError, Error
      nil
    end

    # An earlier HUP goes on.
    def give_up_reading(reason)
      give_up(reason)
      end_reading(reason)
    end

    def end_reading(reason)
      @orders.refuse_apart(reason)
      @failed.call unless renewing?
    end
  end
end
