# frozen_string_literal: true

require "json"
require "socket"
require_relative "../../lib/fastrack/proxy/outbox"
require_relative "../../lib/fastrack/proxy/program"
require_relative "gc_mode"

# The proxy's program alone, with the spec in the place of master and workers: for what no worker sends, or shows to its app.
class LoneProxy
  # @param dir [String] a folder for the workers' socket
  # @param nofile [Integer] most descriptors
  # @param log [IO, nil] target of the access log
  # @param settings [Hash] further ones, see crates/proxy/src/settings.rs
  def self.open(dir, **settings)
    proxy = new(dir, **settings)
    yield proxy
  ensure
    proxy&.close
  end

  # @return [Integer]
  attr_reader :port, :pid

  # @return [IO] lines of the proxy for its master
  attr_reader :said

  # @return [Array<String>] those that came before it was ready
  attr_reader :said_before

  def initialize(dir, log: nil, nofile: Process.getrlimit(:NOFILE).first, **settings)
    path = File.join(dir, "workers.sock")
    @workers = UNIXServer.new(path)
    @listener = TCPServer.new("127.0.0.1", 0)
    @port = @listener.addr[1]
    @pid = launch(nofile)
    line = JSON.generate(listeners: [{ name: "127.0.0.1:#{@port}", descriptor: 0 }], upstream: path, h2c: true,
                         descriptors: [@listener, log].compact.size, access_log: ({ descriptor: 1 } if log), **settings)
    @orders.add("#{line}\n", [@listener, log].compact)
    @said_before = []
    until (said = @said.gets) == "ready \n"
      raise "the proxy has ended, and said #{@said_before.inspect}" if said.nil?

      @said_before << said
    end
  end

  # A connection of the proxy's to a worker.
  def worker
    raise "the proxy has not asked" unless @workers.wait_readable(GcMode.patient(20))

    @workers.accept
  end

  # The next connection of the proxy's to a worker, if it comes within so many seconds.
  def next_worker(seconds) = (@workers.accept if @workers.wait_readable(seconds))

  # Whether the proxy makes another connection to a worker.
  def asked? = !@workers.wait_readable(0).nil?

  def connect = TCPSocket.new("127.0.0.1", @port)

  # A client whose request a worker has got, and the worker's connection.
  def ask(*lines)
    client = connect
    client.write("#{["GET / HTTP/1.1", "Host: a", *lines].join("\r\n")}\r\n\r\n")
    asked = worker
    asked.gets("\r\n\r\n")
    [client, asked]
  end

  # A client whose connection has become a tunnel, and the worker's connection.
  def tunnel
    client, asked = ask("Connection: upgrade", "Upgrade: websocket")
    asked.write("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
    head = client.gets("\r\n\r\n").to_s
    raise "no tunnel: #{head.inspect}" unless head.start_with?("HTTP/1.1 101 ")

    [client, asked]
  end

  # Waits for a line of the proxy's.
  #
  # @param word [String] with which it begins
  # @return [String] its text
  def await_line(word)
    loop do
      raise "the proxy has not said #{word}" unless @said.wait_readable(GcMode.patient(20))

      line = @said.gets or raise "the proxy has ended"
      return line.chomp.delete_prefix("#{word} ") if line.start_with?("#{word} ")
    end
  end

  # Waits until the proxy tells counters that fit.
  #
  # @yieldparam [Hash] the counters
  def await_stats
    loop do
      stats = JSON.parse(await_line("stats"))
      return stats if yield(stats)
    end
  end

  # A client that the proxy has not accepted.
  #
  # @return [TCPSocket, nil] nil: all were accepted
  def unaccepted = @listener.accept_nonblock(exception: false).then { |socket| socket unless socket == :wait_readable }

  # Orders the end, see crates/proxy/src/ending.rs.
  def order_end(idle: 0.25, linger: 600, spread: 0, cut: 600, tunnels: true)
    @orders.add("end #{JSON.generate(idle: idle, linger: linger, spread: spread, cut: cut, tunnels: tunnels)}\n")
  end

  # @return [Process::Status]
  def await_end = Eventually.eventually(GcMode.patient(20), "the proxy has not ended") { ended? }

  def ended?
    _, @status = Process.wait2(@pid, Process::WNOHANG) unless @status
    @status
  end

  # Ends as with its master, at once.
  def close
    order_end(idle: 0, linger: 0, cut: 0) unless ended?
    @orders.close
    Process.wait(@pid) unless ended?
    [@said, @workers, @listener].each(&:close)
  end

  private

  def launch(nofile)
    theirs_in, ours = UNIXSocket.pair
    @orders = Fastrack::Proxy::Outbox.new(ours)
    @said, theirs_out = IO.pipe
    spawn([Fastrack::Proxy::Program.path, "fastrack proxy"], in: theirs_in, out: theirs_out, rlimit_nofile: nofile, close_others: true)
  ensure
    [theirs_in, theirs_out].each(&:close)
  end
end
