# frozen_string_literal: true

# Clients that ask one request after the other, on connections of their own or on one that they keep, while an example does
# something to the server; and what they got.
class ClientLoop
  # Seconds between two requests of a client, at most. Without a pause they would leave others no processor.
  PAUSE = 0.01

  # What is said of a connection that the server has ended, and of one that it has ended instead of an answer.
  ENDED = "the connection ended after "
  NOTHING = "#{ENDED}\"\""
  private_constant :ENDED, :NOTHING

  # The bodies of all answers, oldest first for each client; what is said of requests that got no answer, or not one with status 200; how
  # many connections were made, and how many kept ones were closed after a response that said so.
  attr_reader :bodies, :failures, :connections, :renewals

  # Returns what the clients got while the block ran; each has asked before it begins and after it ends.
  #
  # @param server [Server, #connect]
  # @param paths [Array<String>] what each of the clients asks for
  # @param kept [Boolean] whether they use a connection again until they are told that it is closed
  # @param pause [Numeric] see PAUSE
  # @param idle [Numeric, nil] seconds without a request after which a kept connection may be closed without a word
  def self.run(server, paths: ["/"] * 3, kept: false, pause: PAUSE, idle: nil, &block)
    new(server, paths, kept, pause, idle).tap { |one| one.run(&block) }
  end

  # The same of clients that keep their connections, and ask all for one path.
  def self.kept(server, clients: 6, path: "/pid", **keywords, &block) = run(server, paths: [path] * clients, kept: true, **keywords, &block)

  def initialize(server, paths, kept, pause, idle)
    @server = server
    @paths = paths
    @kept = kept
    @pause = pause
    @idle = idle
    @connections = @renewals = 0
    @bodies = []
    @failures = []
    @lock = Mutex.new
    @asked = Array.new(paths.size, 0)
    @over = false
  end

  def run
    # That of before: a server that is on its way out must not be asked where its successor is.
    @port, @path = @server.port, @server.path if @server.is_a?(Server)
    threads = @paths.each_index.map { |index| Thread.new { ask(index) until @over } }
    await_answers
    result = yield self
    await_answers
    result
  ensure
    @over = true
    threads.each { |thread| thread.join && thread[:connection]&.close }
  end

  # Waits until every client has begun and ended another request.
  def await_answers
    before = @asked.dup
    Eventually.eventually(20, "no answers") { @asked.zip(before).all? { |now, old| now >= old + 2 } }
  end

  # The bodies of the answers that have come since the last call.
  def news = @lock.synchronize { @bodies.drop(@told ||= 0).tap { |found| @told += found.size } }

  private

  def ask(index)
    socket = Thread.current[:connection] ||= connect
    send_request(socket, @paths[index])
    response = HttpResponse.parse(read(socket))
    renew if !@kept || response.headers["Connection"].to_s.casecmp?("close")
    note(response.status == 200 ? response.body : nil, response.inspect)
  rescue StandardError => e
    hang_up
    note(nil, "#{e.class}: #{e.message}") unless closed_when_idle?(e)
  ensure
    @asked[index] += 1
    sleep(rand * @pause)
  end

  # Whether the client has let the connection be idle for too long: the machine may have stopped this process.
  def closed_when_idle?(error)
    @idle && Thread.current[:idle].to_f > @idle && (error.is_a?(Errno::EPIPE) || error.message == NOTHING)
  end

  # Notes how long ago the one before was sent.
  def send_request(socket, path)
    socket.write("GET #{path} HTTP/1.1\r\nHost: localhost\r\n#{"Connection: close\r\n" unless @kept}\r\n")
  ensure
    before, Thread.current[:sent_at] = Thread.current[:sent_at], Eventually.now
    Thread.current[:idle] = before && (Thread.current[:sent_at] - before)
  end

  def connect
    Thread.current[:sent_at] = nil
    @lock.synchronize { @connections += 1 }
    return @server.connect unless @port || @path

    @path ? UNIXSocket.new(@path) : TCPSocket.new("127.0.0.1", @port)
  end

  def renew
    @lock.synchronize { @renewals += 1 } if @kept
    hang_up
  end

  def hang_up
    Thread.current[:connection]&.close
    Thread.current[:connection] = nil
  end

  # A response whose length its head tells.
  def read(socket)
    bytes = +""
    until bytes =~ /\r\n\r\n/ && $~.post_match.bytesize >= bytes[/^content-length: (\d+)/i, 1].to_i
      raise "nothing after #{bytes.inspect}" unless socket.wait_readable(GcMode.patient(20))

      bytes << socket.readpartial(65_536)
    end
    bytes
  rescue EOFError
    raise "#{ENDED}#{bytes.inspect}"
  end

  def note(body, failure) = @lock.synchronize { body ? @bodies << body : @failures << failure }
end
