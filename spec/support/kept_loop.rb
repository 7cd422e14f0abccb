# frozen_string_literal: true

require_relative "kept_peer"
require_relative "eventually"

# Clients that ask one request after the other on connections that they keep, while an example does something to the
# server. One that is told that its connection closes connects anew, as any client does.
class KeptLoop
  # @return [Array<String>] the bodies of all answers
  attr_reader :bodies
  # @return [Array<String>] requests that got no answer, or not one with status 200
  attr_reader :failures
  # @return [Integer] connections that were closed after a response that said so
  attr_reader :renewals

  def self.run(server, **keywords, &block)
    new(server, **keywords).tap { |loop| loop.run(&block) }
  end

  # @param pause [Numeric] seconds between two requests of a client, at most
  def initialize(server, clients: 6, path: "/pid", pause: 0.01)
    @server = server
    @path = path
    @pause = pause
    @bodies = []
    @failures = []
    @renewals = 0
    @lock = Mutex.new
    @asked = Array.new(clients, 0)
    @over = false
  end

  def run
    threads = @asked.each_index.map { |index| Thread.new { ask(index) } }
    await_answers
    yield self
    await_answers
  ensure
    @over = true
    threads.each(&:join)
  end

  # Waits until every client has begun and ended another request.
  def await_answers
    before = @asked.dup
    Eventually.eventually(20, -> { "no answers; #{@failures.first(3)}" }) { @asked.zip(before).all? { |now, old| now >= old + 2 } }
  end

  private

  def ask(index)
    peer = nil
    until @over
      peer = ask_once(peer ||= KeptPeer.new(@server))
      @asked[index] += 1
      sleep(rand * @pause)
    end
  ensure
    peer&.close
  end

  # @return [KeptPeer, nil] nil when its connection has ended
  def ask_once(peer)
    response = peer.get(@path)
    @lock.synchronize { response.status == 200 ? @bodies << response.body : @failures << response.inspect }
    return peer unless response.headers["Connection"] == "close"

    @lock.synchronize { @renewals += 1 }
    peer.close
  rescue StandardError => e
    @lock.synchronize { @failures << "#{e.class}: #{e.message}" }
    peer.close
  end
end
