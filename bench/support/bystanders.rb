# frozen_string_literal: true

require "socket"
require_relative "clock"
require_relative "endpoint"

module Bench
  # Clients that are there while something else is measured: slow ones, idle ones.
  module Bystanders
    # How many connections are made at once: enough for all workers to get some.
    BATCH = 32
    # Seconds until an answer must have come.
    PATIENCE = 10
    private_constant :BATCH, :PATIENCE

    # A client that takes a small step at a time: it sends a head that never ends, or reads a long answer.
    class Slow
      # Bytes, which the kernel doubles and for which it has a minimum of its own, see socket(7); and of TCP in an Ethernet frame.
      RECEIVE_BUFFER = 4_096
      SEGMENT = 1_460
      # Seconds until the connection must have come about.
      CONNECT = 1
      private_constant :RECEIVE_BUFFER, :SEGMENT, :CONNECT

      # @param path [String, nil] what it reads; nil: it sends
      def initialize(endpoint, path)
        @endpoint = endpoint
        @reads = !path.nil?
        @request = "GET #{path || "/"} HTTP/1.1\r\nHost: localhost\r\n#{path ? "\r\n" : "X-Slow: "}"
      end

      # Connects where that is needed, then sends or reads up to so many bytes.
      #
      # @return [Boolean] false when the server has closed the connection, or does not take one
      def step(bytes)
        unless @socket
          @socket = connect
          @left = @request.dup
        end
        @reads && @left.empty? ? receive(bytes) : write(@reads ? @left.bytesize : bytes)
        true
      rescue SystemCallError, IOError
        close
        false
      end

      def close
        @socket&.close
        @socket = nil
      end

      private

      # A reader bounds what the kernels take for it: its own by SO_RCVBUF, the server's by TCP_MAXSEG, because a send buffer grows
      # with the size of a segment, which is 64 KB on the loopback interface. Both must be set before the connection is made, see tcp(7).
      def connect
        socket = Socket.new(:INET, :STREAM)
        if @reads
          socket.setsockopt(:SOCKET, :RCVBUF, RECEIVE_BUFFER)
          socket.setsockopt(:TCP, Socket::TCP_MAXSEG, SEGMENT)
        end
        address = Addrinfo.tcp(Endpoint::HOST, @endpoint.port)
        return socket unless socket.connect_nonblock(address, exception: false) == :wait_writable

        socket.wait_writable(CONNECT) or raise Errno::ETIMEDOUT
        socket.connect_nonblock(address)
        socket
      rescue Errno::EISCONN
        socket
      end

      def receive(bytes) = @socket.read_nonblock(bytes, exception: false) || raise(EOFError)

      # A head that has no end has no answer, unless the server has had enough of it.
      def write(bytes)
        raise Errno::ECONNABORTED unless @socket.read_nonblock(1, exception: false) == :wait_readable

        @left = "a" if @left.empty?
        sent = @socket.write_nonblock(@left.byteslice(0, bytes), exception: false)
        @left = @left.byteslice(sent..) if sent.is_a?(Integer)
      end
    end

    module_function

    # Calls the block while clients send and read slowly, each a step in so many milliseconds.
    #
    # @return [Array(Object, Integer)] the block's result, and how often the server broke off with a client, which then began anew
    def trickle(endpoint, path:, interval_ms:, bytes:, senders: 0, readers: 0)
      clients = Array.new(senders) { Slow.new(endpoint, nil) } + Array.new(readers) { Slow.new(endpoint, path) }
      raise "a slow client cannot connect" unless clients.all? { |client| client.step(bytes) }

      broken = 0
      over = false
      # One after the other, so that they do not all come in the same millisecond.
      steps = Thread.new do
        clients.cycle do |client|
          sleep(interval_ms / 1e3 / clients.size)
          break if over

          broken += 1 unless client.step(bytes)
        end
      end
      result = yield
      over = true
      steps.join
      [result, broken]
    ensure
      over = true
      clients.each(&:close)
    end

    # Makes connections with one request each, as many as there is time for, and calls the block while they are idle.
    #
    # @param seconds [Numeric] for making them
    # @yieldparam there [Hash{String => Integer}] how many connections are `held` by the server, `closed` by it, `failed`
    # @return [Array] the block's result; `there` with how many are `still_open`; and what Served.of takes of these clients
    def hold(endpoint, connections, seconds)
      hard = Process.getrlimit(:NOFILE).last
      Process.setrlimit(:NOFILE, hard, hard)
      there = { "held" => 0, "closed" => 0, "failed" => 0 }
      # This process needs descriptors besides.
      sockets, waits = make(endpoint, [connections, hard - BATCH].min, there, Bench.now + seconds)
      result = yield there
      open = sockets.count { |socket| socket.read_nonblock(1, exception: false) == :wait_readable rescue false }
      served = waits.count { |wait| wait && wait <= 1 }
      [result, there.merge("still_open" => open),
       { clients: waits.size, served_every_second: served, longest_gap_us: (waits.compact.max.to_f * 1e6).round }]
    ensure
      sockets&.each(&:close)
    end

    def make(endpoint, connections, there, deadline)
      sockets, waits = [], []
      while waits.size < connections && there["failed"] < BATCH && Bench.now < deadline
        batch = Array.new([BATCH, connections - waits.size].min) { Thread.new { ask(endpoint) } }
        batch.map(&:value).each do |outcome, wait, socket|
          there[outcome] += 1
          waits << wait
          sockets << socket if outcome == "held"
        end
      end
      [sockets, waits]
    end

    # @return [Array] `held`, `closed` or `failed`; seconds until the answer, nil without one; the connection
    def ask(endpoint)
      begun = Bench.now
      socket = endpoint.connect
      socket.write("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
      answer = socket.wait_readable(PATIENCE) ? socket.readpartial(4_096) : ""
      return ["failed", nil, nil] unless answer.start_with?("HTTP/1.1 200")

      [answer.match?(/^connection: close/i) ? "closed" : "held", Bench.now - begun, socket]
    rescue SystemCallError, IOError
      ["failed", nil, nil]
    end
    private_class_method :make, :ask
  end
end
