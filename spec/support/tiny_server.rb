# frozen_string_literal: true

require "socket"

# A server of a few lines, for examples in which the client is under test. It runs in threads of the example's process.
class TinyServer
  # What an answer is made of.
  Answer = Struct.new(:status, :body, :headers, :close, keyword_init: true) do
    def to_s
      lines = ["HTTP/1.1 #{status || 200} OK", "Content-Length: #{body.to_s.bytesize}"]
      lines.concat(headers.to_h.map { |name, value| "#{name}: #{value}" })
      "#{lines.join("\r\n")}\r\n\r\n#{body}"
    end
  end

  # @param answer [#call] gives an Answer for a path; one with `close` ends the connection, and so does nil, at once
  # @yieldparam server [TinyServer]
  def self.run(answer)
    server = new(answer)
    yield server
  ensure
    server&.stop
  end

  # @return [Array<String>] the paths that were asked for, in that order
  attr_reader :paths
  # @return [Array<TCPSocket>] all connections that were made
  attr_reader :sockets

  def initialize(answer)
    @answer = answer
    @paths = []
    @sockets = []
    @threads = []
    @listener = TCPServer.new("127.0.0.1", 0)
    @acceptor = Thread.new { accept }
  end

  # @return [#to_s] where it listens
  def endpoint = "127.0.0.1:#{@listener.addr[1]}"

  def stop
    @acceptor.kill.join
    @threads.each { |thread| thread.kill.join }
    [@listener, *@sockets].each(&:close)
  end

  private

  def accept
    loop do
      socket = @listener.accept
      @sockets << socket
      @threads << Thread.new { serve(socket) }
    end
  end

  def serve(socket)
    while (path = request(socket))
      @paths << path
      answer = @answer.call(path)
      socket.write(answer.to_s) if answer
      break if answer.nil? || answer.close
    end
  rescue SystemCallError, IOError
    nil
  ensure
    socket.close
  end

  # The path of the next request; nil when there is none. The head is read, a body would not be.
  def request(socket)
    line = socket.gets("\r\n") or return
    nil until ["\r\n", nil].include?(socket.gets("\r\n"))
    line.split[1]
  end
end
