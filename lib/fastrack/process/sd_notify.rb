# frozen_string_literal: true

require "socket"

module Fastrack
  # Tells whoever started the server how it is: systemd, by the protocol of sd_notify(3), through the datagram socket that
  # NOTIFY_SOCKET names. Where there is none, nothing is said. What cannot be delivered is lost: a supervisor that is gone
  # is no reason to stop serving.
  class Notifier
    # @param environment [Hash, ENV] NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID count
    def initialize(environment = ENV)
      path = environment["NOTIFY_SOCKET"].to_s
      # "@" stands for the null byte that abstract names begin with (unix(7)); other forms (vsock) are for virtual machines.
      @address = path.sub(/\A@/, "\0") if path.start_with?("/", "@")
      @watchdog_usec = environment["WATCHDOG_USEC"].to_i
      @watchdog_pid = environment["WATCHDOG_PID"]&.to_i
    end

    # The server is there: all of its workers serve. It also ends a reload.
    #
    # @param status [String, nil] one line for `systemctl status`
    def ready(status = nil)
      say("READY=1", status && "STATUS=#{status}")
    end

    # The server changes over to new code or a new configuration; #ready ends it. systemd wants to know when that was,
    # so that it does not take an earlier #ready for the answer.
    def reloading
      say("RELOADING=1", "MONOTONIC_USEC=#{Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)}")
    end

    # The server begins to stop.
    def stopping
      say("STOPPING=1")
    end

    # The server is alive. To be said every #watchdog_interval seconds.
    def watchdog
      say("WATCHDOG=1")
    end

    # Another process is the master from now on. From the master itself, its watchdog is expected to be fed by it.
    #
    # @param pid [Integer]
    def main_pid(pid)
      @watchdog_pid = pid if @watchdog_pid
      say("MAINPID=#{pid}")
    end

    # @return [Float, nil] seconds from one #watchdog to the next, half of what systemd waits (sd_watchdog_enabled(3)); nil
    #   when it does not wait, or for another process
    def watchdog_interval
      return unless @address && @watchdog_usec.positive?

      @watchdog_usec / 2_000_000.0 if @watchdog_pid.nil? || @watchdog_pid == Process.pid
    end

    private

    # @return [Boolean] whether it was sent
    def say(*lines)
      return false unless @address

      socket = Socket.new(:UNIX, :DGRAM)
      socket.connect_nonblock(Addrinfo.unix(@address))
      socket.sendmsg_nonblock(lines.compact.join("\n"))
      true
    rescue SystemCallError, IO::WaitWritable, ArgumentError
      # ArgumentError: the path is too long for a socket.
      false
    ensure
      socket&.close
    end
  end
end
