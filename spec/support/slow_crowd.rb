# frozen_string_literal: true

require "socket"
require "zlib"
require_relative "http_response"

# Many slow clients in one thread: each takes its response, or sends its body, evenly over some seconds.
class SlowCrowd
  # Seconds between two turns of a client, and what it may be late altogether.
  STEP = 0.05
  PATIENCE = 60

  # One client, which has so many bytes to send and then takes a response.
  class Client
    # @return [String, nil] what went wrong; nil when it got a whole response
    attr_reader :failure

    # @param request [String] all of it
    # @param sends_for [Numeric] seconds over which the request is sent
    # @param takes_for [Numeric] seconds over which the response is taken
    # @param size [Integer] of the response's body
    # @param checksum [Integer] of that body (CRC-32)
    def initialize(server, request, sends_for: 0, takes_for: 0, size: 0, checksum: 0)
      @socket = server.connect
      # The kernel takes little ahead of this client.
      @socket.setsockopt(Socket::SOL_SOCKET, Socket::SO_RCVBUF, 32_768) if takes_for.positive?
      @request = request
      @sends_for = sends_for.to_f
      @takes_for = takes_for.to_f
      @expected = [200, size, checksum]
      @sent = @taken = @checksum = 0
      @head = nil
      @bytes = +"".b
    end

    def over?
      @socket.closed?
    end

    # @param elapsed [Float] seconds since the crowd began
    def step(elapsed)
      @sent < @request.bytesize ? send_until(share(@request.bytesize, elapsed, @sends_for)) : take_until(share(@expected[1], elapsed, @takes_for))
    rescue IO::WaitReadable, IO::WaitWritable
      nil
    rescue SystemCallError, EOFError, HttpResponse::Malformed => e
      give_up("#{e.class} after #{elapsed.round(1)} s, #{@sent} bytes sent and #{@taken} of #{@expected[1]} taken: #{@head}")
    end

    def give_up(reason)
      @failure = reason
      @socket.close
    end

    private

    def share(whole, elapsed, seconds)
      elapsed < seconds ? (whole * elapsed / seconds).floor : whole
    end

    def send_until(position)
      @sent += @socket.write_nonblock(@request.byteslice(@sent...position)) if position > @sent
    end

    def take_until(position)
      take_head while @head.nil?
      while @taken < position
        part = @bytes.empty? ? @socket.read_nonblock([position - @taken, 65_536].min) : @bytes.slice!(0..)
        @taken += part.bytesize
        @checksum = Zlib.crc32(part, @checksum)
      end
      finish if @taken >= @expected[1]
    end

    def take_head
      @bytes << @socket.read_nonblock(1024)
      head, rest = @bytes.split("\r\n\r\n", 2)
      @head, @bytes = head, rest if rest
    end

    def finish
      found = [@head[%r{\AHTTP/1\.1 (\d+)}, 1].to_i, @taken, @checksum]
      @failure = "#{found} instead of #{@expected}: #{@head}" if found != @expected
      @socket.close
    end
  end

  # Runs until all have what they came for.
  #
  # @param clients [Array<Client>]
  # @yield between two turns
  # @return [Array<String>] what went wrong
  def self.run(clients)
    start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    elapsed = 0
    until clients.all?(&:over?)
      clients.each { |client| client.step(elapsed) unless client.over? }
      yield
      sleep STEP
      elapsed = Process.clock_gettime(Process::CLOCK_MONOTONIC) - start
      clients.each { |client| client.give_up("not over after #{elapsed} s") unless client.over? } if elapsed > PATIENCE
    end
    clients.filter_map(&:failure)
  end
end
