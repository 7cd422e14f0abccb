# frozen_string_literal: true

require "io/wait"
require "stringio"

module Bench
  # Asks a server one request, to see that it is up and that it answers what it should.
  module Client
    # Seconds until an answer counts as none.
    PATIENCE = 60

    # @param endpoint [Endpoint::Tcp, Endpoint::Unix]
    # @param request [Request]
    # @return [Array(Integer, String)] the status (0 when the answer has none) and the body
    # @raise [SystemCallError] when nobody listens or the connection breaks
    def self.ask(endpoint, request)
      socket = endpoint.connect
      socket.write(request.to_s(close: true))
      head, _, body = read_all(socket).partition("\r\n\r\n")
      body = unchunked(body) if head.match?(/^transfer-encoding: *chunked/i)
      [head[%r{\AHTTP/1\.[01] (\d{3})}, 1].to_i, body]
    ensure
      socket&.close
    end

    def self.read_all(socket)
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE
      bytes = +""
      loop do
        left = deadline - Process.clock_gettime(Process::CLOCK_MONOTONIC)
        return bytes unless left.positive? && socket.wait_readable(left)

        bytes << socket.readpartial(65_536)
      end
    rescue EOFError
      bytes
    end

    # @return [String] the data of a chunked body, as far as it came
    def self.unchunked(body)
      rest = StringIO.new(body)
      data = +""
      while (size = rest.gets.to_s.hex).positive?
        data << rest.read(size).to_s
        rest.gets
      end
      data
    end
    private_class_method :read_all, :unchunked
  end
end
