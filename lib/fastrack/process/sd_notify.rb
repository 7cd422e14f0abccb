# frozen_string_literal: true

require "socket"

module Fastrack
  # Reports the server's state to systemd (sd_notify(3)), by the datagram socket NOTIFY_SOCKET. Messages that cannot be sent are dropped.
  class SdNotify
    # @param environment [Hash, ENV] NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID
    def initialize(environment = ENV)
      path = environment["NOTIFY_SOCKET"].to_s
      # "@" stands for the null byte of an abstract name (unix(7)). Other forms (vsock) are for virtual machines.
      @address = path.start_with?("@") ? "\0#{path.delete_prefix("@")}" : path if path.start_with?("/", "@")
      @watchdog_usec = environment["WATCHDOG_USEC"].to_i
      @watchdog_pid = environment["WATCHDOG_PID"]&.to_i
      @pinged_at = nil
    end

    # Says that all workers serve, also at the end of a reload.
    #
    # @param status [String, nil] one line for `systemctl status`
    def ready(status = nil) = notify("READY=1", status && "STATUS=#{status}")

    # Says that a reload or an upgrade begins; #ready ends it. By the time in the message systemd tells earlier #ready messages apart.
    def reloading
      notify("RELOADING=1", "MONOTONIC_USEC=#{Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)}")
    end

    # Says that the server begins to stop.
    def stopping = notify("STOPPING=1")

    # Pings the watchdog; due every #watchdog_interval seconds.
    def watchdog = notify("WATCHDOG=1")

    # Says that another process is the master. The new master sends this itself, and then pings the watchdog.
    #
    # @param pid [Integer]
    def main_pid(pid)
      @watchdog_pid = pid if @watchdog_pid
      notify("MAINPID=#{pid}")
    end

    # @return [Float, nil] half of systemd's timeout, in seconds (sd_watchdog_enabled(3)); nil without a watchdog, or if another process has
    #   to ping
    def watchdog_interval
      return unless @address && @watchdog_usec.positive?

      @watchdog_usec / 2_000_000.0 if @watchdog_pid.nil? || @watchdog_pid == Process.pid
    end

    # @return [Float, nil] monotonic seconds when #step has to be called
    def due_at
      interval = watchdog_interval
      interval && (@pinged_at ? @pinged_at + interval : 0.0)
    end

    # Pings the watchdog when it is due.
    def step(now)
      due = due_at
      return if due.nil? || now < due

      @pinged_at = now
      watchdog
    end

    private

    # @return [Boolean] whether it was sent
    def notify(*lines)
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
