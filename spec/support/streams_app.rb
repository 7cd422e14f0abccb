# frozen_string_literal: true

require_relative "http_apps"
require_relative "http_peer"
require_relative "monitor_client"
require_relative "threads_app"

# A server whose app sends event streams, in each way that Rack has, and answers other requests.
module StreamsApp
  include ThreadsApp

  RU = <<~'RUBY'
    HERE = File.dirname(File.expand_path(__FILE__))
    LOCK = Mutex.new
    INSIDE = Hash.new(0)
    PEAK = Hash.new(0)

    # Files beside this one.
    module Notes
      def self.note(name, text) = File.write(File.join(HERE, name), "#{text}\n", mode: "a")
      def self.file?(name) = File.exist?(File.join(HERE, name))
    end

    # An event stream: one event at once, one for each file "event.N", and the last one for the file "end".
    class Events
      def initialize(name, env)
        @name = name
        @gone = env["fastrack.client_gone"]
      end

      def each
        yield "data: first\n\n"
        (1..).each do |number|
          sleep 0.01 until Notes.file?("end") || Notes.file?("event.#{number}")
          return yield("data: last\n\n") if Notes.file?("end")

          yield "data: #{number}\n\n"
        end
      end

      def close = Notes.note("closed", @name)

      # A callable that writes to the client itself.
      def to_hijack
        lambda do |stream|
          each { |part| stream.write(part) }
        ensure
          stream.close
          close
        end
      end
    end

    # One event, and then nothing for ever.
    class Silent < Events
      def each
        yield "data: first\n\n"
        Notes.note("waiting", @name)
        sleep
      rescue Exception => e
        Notes.note("ended", [@name, e.class, e.is_a?(Errno::EPIPE), @gone.call].join(" "))
        raise
      end
    end

    # The same, and rescues everything.
    class Stubborn < Silent
      def each
        super
      rescue StandardError
        yield "data: more\n\n"
        Notes.note("ended", "#{@name} went on")
      end
    end

    # The same, and cannot be interrupted.
    class Deaf < Silent
      def each(&block) = Thread.handle_interrupt(Fastrack::StreamEnded => :never) { super(&block) }
    end

    # A stream that computes.
    class Busy < Events
      def each
        yield "data: first\n\n"
        100_000.times { |number| number * number } until Notes.file?("end")
      end
    end

    SSE = { "content-type" => "text/event-stream" }.freeze

    run lambda { |env|
      kind, name = env["PATH_INFO"].delete_prefix("/").split("/", 2)
      query = env["QUERY_STRING"]
      body = { "events" => Events, "silent" => Silent, "stubborn" => Stubborn, "deaf" => Deaf, "busy" => Busy }[name.to_s.split("/").first]&.new(query, env)
      case kind
      when "each" then next [200, SSE, body]
      when "length" then next [200, { **SSE, "content-length" => "25" }, body]
      when "call" then next [200, SSE, body.to_hijack]
      when "hijack" then next [200, { **SSE, "rack.hijack" => body.to_hijack }, []]
      when "limited"
        env["fastrack.timeout"].call(query.to_f)
        next [200, SSE, Silent.new("limited", env)]
      when "socket"
        socket = env["rack.hijack"].call
        socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
        Thread.new do
          while (line = socket.gets) do socket.write("#{Process.pid} #{line}") end
          Notes.note("left", name)
          socket.close
        end
        next [-1, {}, []]
      when "pid" then next [200, {}, [Process.pid.to_s]]
      when "slow-pid"
        sleep 0.05
        next [200, {}, [Process.pid.to_s]]
      when "marked"
        env["puma.mark_as_io_bound"].call
        Notes.note("waiting", query)
        sleep 0.01 until Notes.file?("go")
      when "wait"
        LOCK.synchronize { PEAK[:wait] = [PEAK[:wait], INSIDE[:wait] += 1].max }
        Notes.note("waiting", query)
        sleep 0.01 until Notes.file?("go")
        LOCK.synchronize { INSIDE[:wait] -= 1 }
      when "peak" then next [200, {}, [PEAK[:wait].to_s]]
      when "threads" then next [200, {}, [Thread.list.count { |thread| thread.name&.start_with?("fastrack thread") }.to_s]]
      when "env" then next [200, {}, [[env["rack.multithread"], Thread.current.name, env.key?("puma.mark_as_io_bound")].join(" ")]]
      when "big"
        # The second half for the file "go".
        half = ->(number) { sleep 0.01 until number < 20 || Notes.file?("go") }
        next [200, SSE, Enumerator.new { |parts| 40.times { |number| half.call(number) ; parts << (number.to_s.rjust(8) * 12_500) } }]
      end
      [200, { "content-type" => "text/plain" }, ["ok"]]
    }
  RUBY

  KINDS = ["each", "hijack", *("call" if HttpApps.rack3?)].freeze

  attr_reader :monitor

  def serve_streams(options: {}, **keywords)
    serve(ru: RU, options: { Pid: "app.pid", **options }, **keywords)
    @monitor = MonitorClient.new(server.file("app.control"))
  end

  # A client that has the first event of a stream, which is one of the server's streams by now.
  def stream(path, streaming: nil)
    peer = HttpPeer.new(server).write("GET #{path} HTTP/1.1\r\nHost: a\r\n\r\n")
    peer.read_until(/data: first/)
    await_streams(streaming) if streaming
    peer
  end

  # A client whose connection the app has taken over.
  def socket(name = "one")
    peer = HttpPeer.new(server).write("GET /socket/#{name} HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
    peer.read_until(/101 .*\r\n\r\n/m)
    peer
  end

  # @return [Integer] pid of the worker that has the client's socket
  def echo(peer, text)
    peer.write("#{text}\n")
    peer.read_until(/ #{text}\n/)[/(\d+) #{text}\n/, 1].to_i
  end

  # @return [Integer] streams of all workers
  def streams = monitor.status.fetch("streams")
  def await_streams(count) = eventually(10, -> { "#{streams} streams instead of #{count}" }) { streams == count }

  # Waits until so many requests have arrived, and wait for a thread.
  def await_waiting(count)
    found = -> { monitor.status.dig("connections", "waiting") }
    eventually(10, -> { "#{found.call} requests wait instead of #{count}" }) { found.call == count }
  end

  # Returns once the server has looked at its streams' clients, after the block: it has noticed that another one has left.
  def await_look
    before = streams
    other = stream("/each/silent?look", streaming: before + 1)
    yield if block_given?
    other.close
    await_streams(before)
  end

  def app_threads = server.get("/threads").body.to_i
end
