# frozen_string_literal: true

require_relative "../configuration/handed"
require_relative "../error"
require_relative "../listener/inherited"
require_relative "../log"
require_relative "../process/last_words"
require_relative "../worker/control_channel"
require_relative "../worker/first_mold"
require_relative "handing"
require_relative "masters"
require_relative "seat"

module Fastrack
  # The first generation 0, in the master's eyes, until the master has its settings. It is forked before anything else, so that threads,
  # ports and at_exit blocks of a ConfigFile are in that process, and never in the master.
  class FirstReading
    # @return [Integer]
    attr_reader :pid
    # @return [ControlChannel]
    attr_reader :channel
    # @return [Handing]
    attr_reader :handing
    # @return [Array(IO, IO)] see Master
    attr_reader :death_pipe

    # Forks generation 0.
    #
    # @param launcher [Launcher]
    # @param app [AppFile]
    # @param user [UserGroup, nil] the app's user, if root has run again (USR2). Nothing of that user's runs as root
    def initialize(launcher, app, user)
      @user = user
      LastWords.open
      @death_pipe = IO.pipe
      @handing, theirs = Handing.pair
      master = Process.pid
      @pid, @channel = ControlChannel.fork(ControlChannel.pair, []) do |channel|
        [@handing, @death_pipe.last].each(&:close)
        FirstReading.leave_to_master
        user&.switch
        seat = Seat.new(master: master, channel: channel, death_pipe: @death_pipe.first, handing: theirs, subreaper: launcher.subreaper?, background: false, opens_logs: user.nil?)
        FirstMold.new(launcher, app, channel, @death_pipe.first, starting: true, seat: seat).live
      end
      theirs.close
      @channel.write(ControlChannel::KNOWN)
    end

    # Whether the process gets open logs from the master.
    def wants_logs? = !@user.nil?

    # Closes what the master has inherited, and is not for this process.
    def self.leave_to_master
      OldMaster.take_over&.channel&.close
      OldMaster.take_over_queue(false)
      ENV["LISTEN_PID"] = Process.pid.to_s if ENV["LISTEN_PID"].to_i == Process.ppid
      InheritedListeners.take_over.discard
      ENV.delete(Proxy::VARIABLE)
    rescue Error
      # The master says what is wrong.
      nil
    end

    # Waits for the settings.
    #
    # @yieldparam settings [Hash{String => Object}] see Reading
    # @yieldreturn [Configuration]
    # @return [Configuration]
    # @raise [Error] when there are none
    # @raise [SystemExit] when the ConfigFile calls exit
    def configuration
      data, = @handing.take
      return fail_start unless data

      Reload.log(data)
      exit(data["status"]) if data["status"]
      raise ConfigurationError, data["refused"] if data["refused"]

      yield data.fetch("settings")
    end

    # Called when the server does not start: the process ends without a word.
    def abandon
      @channel.write(ControlChannel::GO)
      [@handing, @channel, *@death_pipe].each(&:close)
      Process.wait(@pid)
    rescue SystemCallError, IOError
      nil
    end

    private

    # The process has ended. It has told its reason, or was killed.
    def fail_start
      _, status = Process.wait2(@pid)
      words = LastWords.of(@pid)
      text = "generation 0 (pid #{@pid}) #{status.signaled? ? "was killed by SIG#{Signal.signame(status.termsig)}" : "exited with status #{status.exitstatus}"} while it read the ConfigFile"
      Log.line(text, :error) unless words
      raise StartFailed.new(words || text, status.exitstatus || 1)
    end
  end
end
