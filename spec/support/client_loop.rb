# frozen_string_literal: true

# Clients that ask one request after the other, each on a connection of its own, while an example does something to the
# server; and what they got.
class ClientLoop
  # @return [Array<String>] the bodies of all answers, oldest first for each client
  attr_reader :bodies
  # @return [Array<String>] requests that got no answer, or not one with status 200
  attr_reader :failures

  # Returns what the clients got while the block ran; each has asked before it begins and after it ends.
  #
  # @param server [Server]
  # @param paths [Array<String>] what each of the clients asks for
  def self.run(server, paths: ["/"] * 3, &block)
    new(server, paths).tap { |loop| loop.run(&block) }
  end

  def initialize(server, paths)
    @server = server
    @paths = paths
    @bodies = []
    @failures = []
    @lock = Mutex.new
    @asked = Array.new(paths.size, 0)
    @over = false
  end

  def run
    # Those of before: a server that is on its way out must not be asked where its successor is.
    @port = @server.port
    @path = @server.path
    threads = @paths.each_index.map { |index| Thread.new { ask(index) until @over } }
    await_answers
    result = yield self
    await_answers
    result
  ensure
    @over = true
    threads.each(&:join)
  end

  # Waits until every client has begun and ended another request.
  def await_answers
    before = @asked.dup
    Eventually.eventually(20, "no answers") { @asked.zip(before).all? { |now, old| now >= old + 2 } }
  end

  # The bodies of the answers that have come since the last call.
  def news
    @lock.synchronize { @bodies.drop(@told ||= 0).tap { |found| @told += found.size } }
  end

  private

  def ask(index)
    response = HttpResponse.parse(exchange(@paths[index]))
    note(response.status == 200 ? response.body : nil, response.inspect)
  rescue StandardError => e
    note(nil, "#{e.class}: #{e.message}")
  ensure
    @asked[index] += 1
  end

  def exchange(path)
    socket = @path ? UNIXSocket.new(@path) : TCPSocket.new("127.0.0.1", @port)
    socket.write("GET #{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    bytes = +""
    loop do
      raise "nothing within 20 s after #{bytes.inspect}" unless socket.wait_readable(20)

      bytes << socket.readpartial(65_536)
    end
  rescue EOFError
    bytes
  ensure
    socket&.close
  end

  def note(body, failure)
    @lock.synchronize { body ? @bodies << body : @failures << failure }
  end
end
