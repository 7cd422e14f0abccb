# frozen_string_literal: true

require_relative "connection"

module Soak
  # Clients of all kinds, a thread each, that ask until they are told to stop. Each knows what it must get.
  class Clients
    # Which kinds there are, how many of each, and the seconds of their pauses.
    KINDS = {
      newcomer: [2, 0.3], kept: [3, 0.4], idle: [6, 6.0], pipelining: [1, 1.0], slow_head: [1, 1.0], slow_body: [1, 1.0],
      upload: [1, 1.5], chunked: [1, 2.0], slow_reader: [1, 1.0], streams: [1, 1.0], vanishing: [1, 0.5], half_closed: [1, 1.0],
      garbage: [1, 2.0], raising: [1, 2.0], ending: [1, 8.0], hanging: [1, 20.0], mischief: [1, 3.0], named: [4, 0.2]
    }.freeze

    # Counts how requests end whose worker crashes or calls exit!.
    ENDED = %i[unanswered cut].freeze

    # Counts how requests end beside one that keeps Ruby's lock until its worker is ended.
    HELD_BESIDE = %i[504 cut].freeze

    QUICK = %w[/ /work /burn].freeze

    # Seconds that all of them get to end what they are at.
    LAST = 60

    def initialize(site, record)
      @site = site
      @record = record
      @over = false
      kinds = KINDS.flat_map { |kind, (count, pause)| Array.new(count, [kind, pause]) }
      @threads = kinds.each_with_index.map { |(kind, pause), index| start(kind, pause, site.random(100 + index)) }
    end

    def stop
      @over = true
      late = @threads.reject { |thread| thread.join(LAST) }
      late.each { |thread| @record.finding("a client does not end: #{thread.name}") && thread.kill }
      @threads = []
    end

    private

    def start(kind, pause, random)
      Thread.new do
        Thread.current.name = kind.to_s
        Thread.current[:random] = random
        until @over
          __send__(kind)
          rest(pause)
        end
      rescue StandardError => e
        @record.finding("the client #{kind} fails: #{e.full_message(highlight: false)}")
      end
    end

    def random = Thread.current[:random]

    # Exponential, cut off.
    def rest(mean)
      till = Bench.now + [-Math.log(1 - random.rand) * mean, mean * 4].min
      sleep(0.05) while Bench.now < till && !@over
    end

    def connection(endpoint = [@site.port, @site.socket].sample(random: random), **options)
      opened = Connection.new(endpoint, **options)
      yield opened
    rescue Connection::Lost => e
      raise if opened

      now = Bench.now
      @record.failure(Thread.current.name, e.kind, now, now, now, e.message)
    ensure
      opened&.close
    end

    def request(path, *lines, verb: "GET", body: nil)
      lines.push("Content-Length: #{body.bytesize}") if body
      "#{verb} #{path} HTTP/1.1\r\n#{["Host: soak", *lines].join("\r\n")}\r\n\r\n#{body}".b
    end

    # @yield [Response] to say whether its body is right
    # @return [Response, nil] nil if there is none that is right
    def expect(connection, status = 200, sent: nil, **reading)
      asked = Bench.now
      send_bytes(connection, sent) if sent
      response = connection.read(**reading)
      kind = response.status == status ? nil : :"#{response.status}"
      kind ||= :wrong if block_given? && !yield(response.body)
      return (@record.answer(Thread.current.name) && response) unless kind

      failed(kind, connection, asked, "#{response.head[0, 200].inspect} #{response.body[0, 100].inspect}")
    rescue Connection::Lost => e
      failed(e.kind, connection, asked, e.message)
    end

    def send_bytes(connection, sent)
      sent.is_a?(Proc) ? sent.call : connection.write(sent)
    end

    def failed(kind, connection, asked, text)
      @record.failure(Thread.current.name, kind, connection.opened, asked, Bench.now, text)
      nil
    end

    def quick = QUICK.sample(random: random)

    def right?(path, body)
      path == "/" ? body.match?(/\A\d+\z/) : body == path.delete_prefix("/")
    end

    # --- the kinds

    def newcomer
      path = quick
      connection { |one| expect(one, sent: request(path, "Connection: close")) { |body| right?(path, body) } }
    end

    def kept(count = random.rand(1..20), pause = 0.3)
      connection do |one|
        count.times do
          path = quick
          response = expect(one, sent: request(path)) { |body| right?(path, body) }
          break if response.nil? || response.last? || @over

          rest(pause)
        end
      end
    end

    def idle
      kept(4, 5.0)
    end

    def pipelining
      paths = Array.new(random.rand(2..8)) { quick }
      connection do |one|
        one.write(paths.map { |path| request(path) }.join)
        paths.each do |path|
          response = expect(one) { |body| right?(path, body) }
          break if response.nil? || response.last?
        end
      end
    end

    def slow_head
      bytes = request("/work", "X-Filler: #{"f" * 300}", "Connection: close")
      connection { |one| expect(one, sent: -> { one.write(bytes, piece: 50, pause: 0.25) }) { |body| body == "work" } }
    end

    def slow_body
      body = random.bytes(600)
      connection do |one|
        sent = -> { one.write(request("/body", "Connection: close", verb: "POST", body: body), piece: 100, pause: 0.4) }
        expect(one, sent: sent) { |answer| answer == "600 #{body.sum}" }
      end
    end

    def upload
      body = random.bytes(random.rand(1_100_000..3_000_000))
      connection do |one|
        sent = -> { one.write(request("/body", "Connection: close", verb: "POST", body: body), piece: 400_000, pause: 0.1) }
        expect(one, sent: sent) { |answer| answer == "#{body.bytesize} #{body.sum}" }
      end
    end

    def chunked
      parts = Array.new(random.rand(3..40)) { random.bytes(random.rand(1..60_000)) }
      head = "POST /body HTTP/1.1\r\nHost: soak\r\nTransfer-Encoding: chunked\r\n\r\n".b
      chunks = parts.map { |part| "#{part.bytesize.to_s(16)}\r\n".b << part << "\r\n" }
      whole = parts.join
      connection do |one|
        expect(one, sent: "#{head}#{chunks.join}0\r\n\r\n".b) { |answer| answer == "#{whole.bytesize} #{whole.sum}" }
      end
    end

    def slow_reader
      connection(receive_buffer: 16_384) do |one|
        expect(one, sent: request("/large", "Connection: close"), pause: 0.02) { |body| body == "l" * 3_000_000 }
      end
    end

    def streams
      connection do |one|
        next unless expect(one, sent: request("/each")) { |body| body == "e" * 600_000 }&.last? == false

        expect(one, sent: request("/file"), pause: 0.1) { |body| body == "f" * 300_000 }
      end
    end

    # Nobody is there to be answered.
    def vanishing
      bytes = [request("/large"), request("/work"), request("/"), request("/each"), request("/body", verb: "POST", body: "b" * 200_000)]
      connection do |one|
        sent = bytes.sample(random: random)
        one.write(sent.byteslice(0, random.rand < 0.5 ? sent.bytesize : random.rand(sent.bytesize)))
        rest(0.2)
        random.rand < 0.5 ? one.abort : one.close
      end
    end

    # Over TCP it might look like one that has left (docs/connections.md).
    def half_closed
      connection(@site.socket) do |one|
        one.write(request("/", "Connection: close"))
        one.finish_sending
        expect(one) { |body| right?("/", body) }
      end
    end

    def garbage
      connection { |one| expect(one, 400, sent: "GARBAGE\r\n\r\n") }
    end

    def raising
      connection { |one| expect(one, 500, sent: request(%w[/raise /raise /deep /memory].sample(random: random))) }
    end

    def ending
      path = %w[/exit /segv /exec /daemon].sample(random: random)
      @record.act(path, *ENDED) { connection { |one| expect(one, :none, sent: request(path)) } }
    end

    def hanging
      path = %w[/hang /loop /native].sample(random: random)
      beside_others(path, *(path == "/native" ? HELD_BESIDE : [])) { connection { |one| expect(one, 504, sent: request(path)) } }
    end

    # With several threads a worker has other requests beside this one.
    def beside_others(path, *kinds, &ask)
      @site.threads > 1 && kinds.any? ? @record.act("#{path} beside others", *kinds, &ask) : yield
    end

    # Each request has a name, and its response must be that one's: begun, streamed, or with what was sent.
    def named
      connection do |one|
        random.rand(1..30).times do
          name = random.bytes(8).unpack1("H*")
          sent = case random.rand(3)
                 when 0 then request("/named?#{name}")
                 when 1 then request("/named_parts?#{name}")
                 else request("/named?#{name}", verb: "POST", body: name)
                 end
          response = expect(one, sent: sent) { |body| body == name || body == name * 5 }
          break if response.nil? || response.last? || @over

          rest(0.02)
        end
      end
    end

    def mischief
      path = %w[/later /leave /leave /fork /fork /thread /thread /term /encodings].sample(random: random)
      connection { |one| expect(one, sent: request(path)) { |body| right?(path, body) } }
    end
  end
end
