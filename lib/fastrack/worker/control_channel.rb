# frozen_string_literal: true

require "socket"
require_relative "../error"
require_relative "../log"
require_relative "../process/guards"
require_relative "../process/line_reader"
require_relative "message"

module Fastrack
  # Messages between the master and a worker or the mold, or between the old and the new master, over a socket pair. A message is a line,
  # see Message. A stream keeps lines whole on all systems: the kernel accepts a short line entirely or not at all.
  class ControlChannel
    include MessageKinds

    # Raised when a mold does not answer in time.
    NoAnswer = Class.new(Error)

    # Raised when a mold has said what is no message.
    Broken = Class.new(Error)

    # An order to a mold: its kind, words that belong to it, and descriptors.
    Order = Struct.new(:kind, :words, :descriptors) do
      # @return [Array<Integer, nil>] what comes with FORK; nil for a place in the scoreboard that the worker does not have
      def numbers = words.map { |word| Integer(word, exception: false) }

      # Whether all descriptors have come. The kernel leaves those out for which the process has no room (RLIMIT_NOFILE, unix(7)).
      def whole? = kind != FORK || descriptors.size == numbers[1]
    end

    # Bytes that are read at once.
    PIECE = LineReader::PIECE

    # Seconds until the next try if the system lacks memory.
    MEMORY_PAUSE = 0.02

    # @param seconds [Float, nil] nil: no limit
    # @return [Array<IO, ControlChannel>] the readable ones; empty if the system lacks memory to tell
    def self.select(readers, seconds)
      IO.select(readers, nil, nil, seconds)&.first || []
    rescue Errno::ENOMEM
      sleep MEMORY_PAUSE
      []
    end

    # @return [Array(ControlChannel, ControlChannel)]
    def self.pair = UNIXSocket.pair(:STREAM).map { |socket| new(socket) }

    # Forks a child, which gets the second channel of a pair; this process keeps the first. The child begins when KNOWN arrives, and exits
    # if the channel ends before. So no child runs without a master.
    #
    # @param pair [Array(ControlChannel, ControlChannel)]
    # @param keep [Array<#close>] other descriptors of the server that the child keeps
    # @param limit [#call] calls its block, which forks, and limits the time
    # @yieldparam theirs [ControlChannel] the child's channel, in the child
    # @yieldreturn [Integer] the child's exit status, see ChildProcess.run
    # @return [Array(Integer, ControlChannel)] the child's pid, and this process's channel
    # @raise [Exception] when no child was forked; then both channels are closed
    def self.fork(pair, keep, limit = ->(&fork) { fork.call })
      ours, theirs = pair
      pid = fork_child(limit) do
        ours.close
        ForkGuard.close_descriptors(keep: [theirs, *keep])
        theirs.await_known
        yield theirs
      end
      [pid, ours]
    rescue Exception # rubocop:disable Lint/RescueException -- it is raised again
      ours.close
      raise
    ensure
      theirs.close
    end

    # Forks this process. An exception of a library's wrapper of Process._fork neither loses the child nor lets it go on as its parent.
    #
    # @yield in the child
    # @yieldreturn [Integer] the child's exit status
    # @return [Integer] the child's pid
    def self.fork_child(limit = ->(&fork) { fork.call }, &work)
      parent = Process.pid
      # Without a flush the child would write buffered output again.
      Log.flush
      Log.while_flushable do |restore|
        limit.call { Process.fork { ChildProcess.run { restore.call.then(&work) } } }
      end
    rescue Exception => e # rubocop:disable Lint/RescueException -- a child is never to go on as its parent
      unless Process.pid == parent
        Log.exception("a child process cannot start", e)
        Process.exit!(1)
      end
      # A wrapper of Process._fork may have raised after the fork.
      raise unless (pid = ForkGuard.forked)

      Log.exception("process #{pid} was forked nevertheless", e)
      pid
    end

    # @param socket [UNIXSocket]
    # @param from [Symbol] who writes at the other end: see Message::KINDS
    def initialize(socket, from = :master)
      @socket = socket
      @from = from
      @lines = LineReader.new(socket)
      @orders = 0
      @descriptors = []
    end

    # @return [IO] for IO.select
    def to_io = @socket

    # @return [Symbol] who writes at the other end: see Message::KINDS
    attr_accessor :from

    # @return [String, nil] what the other process has said that is no message; nothing is read from then on
    attr_reader :broken

    # Ignores errors, because the end of the other process is noticed in other ways.
    #
    # @param message [String] its kind, and what belongs to it; what the other process would not read as one line is left out
    # @return [Integer, nil] nil where it cannot be sent
    def write(message)
      @socket.write_nonblock("#{message.b.tr("\n", " ").byteslice(0, PIECE - 1)}\n")
    rescue IO::WaitWritable, SystemCallError, IOError
      nil
    end

    # Has generation 0 lend its ports (LentPorts).
    #
    # @param socket [UNIXSocket] takes them
    def lend(socket)
      @socket.sendmsg_nonblock("#{LEND}\n", 0, nil, Socket::AncillaryData.unix_rights(socket))
    rescue IO::WaitWritable, SystemCallError, IOError
      nil
    end

    # Waits in a child for KNOWN. Signals are only queued so far.
    def await_known
      # sysread does not read ahead.
      @socket.sysread(KNOWN.bytesize + 1)
    rescue Errno::EAGAIN, Errno::EINTR
      # A signal has interrupted poll(2).
      retry
    rescue SystemCallError, IOError
      Process.exit!(1)
    end

    # Reads once, so that a process that writes without an end holds nobody up.
    #
    # @return [Array<Message>, nil] messages that have arrived; nil when the other process has closed its channel, or is broken
    def read
      messages(@lines.read) unless @broken
    rescue Errno::ENOMEM, Errno::ENOBUFS
      # The other process still runs. The pause keeps IO.select from reporting the channel again at once.
      sleep MEMORY_PAUSE
      []
    end

    # Has the mold fork a worker, and waits for its answer.
    #
    # @param nr [Integer] the worker's number
    # @param slot [Integer, nil] its place in the scoreboard
    # @param listeners [Array<Integer>] identities of the listeners whose descriptors come after the first one
    # @param descriptors [Array<IO>] copies of which the mold gets (SCM_RIGHTS, unix(7))
    # @param seconds [Numeric, nil] for the answer; nil: no limit
    # @yieldparam message [Message] each other one that comes before it
    # @return [Integer] the worker's pid; 0: the mold could not fork
    # @raise [IOError, SystemCallError, Error] when there is no answer
    def order(nr, slot, listeners, descriptors, seconds, &other)
      number = @orders += 1
      text = [FORK, number, descriptors.size, nr, slot || "none", *listeners].join(" ")
      @socket.sendmsg("#{text}\n", 0, nil, Socket::AncillaryData.unix_rights(*descriptors))
      ends = now + seconds if seconds
      loop do
        if ControlChannel.select([self], ends && [ends - now, 0].max).any?
          pid = answer(number, &other)
          return pid if pid
        elsif ends && now >= ends
          raise NoAnswer, "it has not answered within #{format("%g", seconds)} s"
        end
      end
    end

    # The next orders. Called in the mold. Other messages are no orders: they were for the worker that the mold was.
    #
    # @return [Array<Order>, nil] nil when the master is gone, or lets go of the mold
    def take_orders
      text, _, _, *control = @socket.recvmsg(PIECE, scm_rights: true)
      return if text.to_s.empty?

      # Descriptors come with the first byte of their order. The rest of its text may come later, behind many other messages.
      @descriptors.concat(control.flat_map { |one| one.unix_rights || [] })
      @lines.lines(text).grep(String).map { |line| order_of(line) }
    rescue Errno::ENOMEM, Errno::ENOBUFS
      # As in #read.
      sleep MEMORY_PAUSE
      []
    rescue SystemCallError, IOError
      nil
    end

    # Answers an order. Called in the mold.
    #
    # @param order [Order]
    # @param pid [Integer] 0: there is none
    def forked(order, pid) = write("#{FORKED} #{order.numbers.first} #{pid}")

    def closed? = @socket.closed?

    def close = @socket.close

    private

    # @param lines [Array<String, Symbol>, nil]
    # @return [Array<Message>, nil]
    def messages(lines)
      lines&.filter_map do |line|
        next if @broken

        # An old master may be of another version, and a worker that becomes the mold reads orders that are a mold's.
        message = Message.parse(line, @from) if line.is_a?(String)
        @broken = line.to_s unless message || %i[master old_master].include?(@from)
        message
      end
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def order_of(line)
      kind, *words = line.split
      Order.new(kind, words, @descriptors.shift({ FORK => words[1].to_i, LEND => 1 }.fetch(kind, 0)))
    end

    # @return [Integer, nil] the pid, if the answer to this order is among the messages
    def answer(number)
      messages = read or raise EOFError, "it has ended"
      answers, others = messages.partition { |message| message.kind == FORKED }
      others.each { |message| yield message }
      raise Broken, "it has said #{@broken[0, 100].inspect}" if @broken

      answers.map(&:words).to_h[number]
    end
  end
end
