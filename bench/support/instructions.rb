# frozen_string_literal: true

require "json"
require "rbconfig"
require "socket"
require_relative "clock"
require_relative "lane"
require_relative "targets"

module Bench
  # Instructions of a request in a whole worker, Ruby included, counted by callgrind in a server that runs under valgrind.
  #
  # Garbage is not collected: when Ruby does that depends on what else has happened. Connections are not handed over: to valgrind's
  # clock each request is a long one. Clients come fifty at a time, so that a worker hardly ever waits.
  class CountedWorker
    APP = <<~RUBY
      GC.disable
      run ->(_env) { [200, { "content-type" => "text/plain", "content-length" => "12" }, ["Hello world\\n"]] }
    RUBY
    REQUEST = "GET / HTTP/1.1\r\nHost: localhost:9292\r\n"
    ANSWER_ENDS = "Hello world\n"
    BATCH = 50
    # Instructions per request are those of the longer run less those of the shorter one, by the difference.
    TIMES = [1_000, 41_000].freeze
    # Seconds for a start, an answer and an end.
    PATIENCE = 300
    private_constant :APP, :REQUEST, :ANSWER_ENDS, :BATCH, :PATIENCE

    # @param dir [String] that the lane sees, too
    # @param times [Array(Integer, Integer)] requests of the two runs
    # @param root [String] a checkout whose extension is built for that lane, and which the lane sees, too
    def initialize(lane, dir, times = TIMES, root: Lane::ROOT)
      @lane = lane
      @root = root
      @dir = dir
      @times = times
      File.write(@ru = File.join(dir, "hello.ru"), APP)
    end

    # @param clients [:pipelined, :kept, :anew] what asks: fifty requests at once; fifty clients with one each, which keep their
    #   connections, or connect anew
    # @yieldparam dir [String] once in the longer run, halfway
    def per_request(clients, options = {}, &halfway)
      few, many = @times.map { |times| count(clients, times, options, &(halfway if times == @times.last)) }
      (many - few).fdiv(@times.last - @times.first)
    end

    private

    def count(clients, times, options)
      log = File.join(@dir, "log")
      launcher = start(times, options, log)
      said = await("the start", log) { |text| text if text.include?("Fastrack is ready") }
      master = said[/Listening on .* Pid:(\d+)/, 1].to_i
      port = said[/Listening on 127\.0\.0\.1:(\d+)/, 1].to_i
      # Generation 0 is the other child, and older.
      worker = File.read("/proc/#{master}/task/#{master}/children").split.last
      send(clients, port, times / 2 / BATCH)
      yield @dir if block_given?
      send(clients, port, times / 2 / BATCH)
      file = File.join(@dir, "callgrind.#{worker}")
      await("the worker's figures", log) { File.exist?(file) && File.read(file)[/^totals: (\d+)/, 1]&.to_i }
    ensure
      Process.kill(:TERM, master) if master
      Process.wait(launcher) if launcher
      Dir.glob(File.join(@dir, "callgrind.*")).each { |one| File.unlink(one) }
    end

    # The worker's figures are written when it has reached its limit, and ends.
    def start(times, options, log)
      own = { Host: "127.0.0.1", Port: 0, MaxWorkers: 1, MinRequestPerChild: times, MaxRequestPerChild: times, HandOver: false, KeepAliveRequests: 0, **options }
      ruby = @lane.name == "system" ? RbConfig.ruby : "ruby"
      words = ["valgrind", "--tool=callgrind", "--callgrind-out-file=#{@dir}/callgrind.%p", ruby, "-I", File.join(@root, "lib"), "-S", "rackup",
               "-s", "Fastrack", "-E", "none", *own.flat_map { |name, value| ["-O", "#{name}=#{value}"] }, @ru]
      File.write(log, "")
      spawn({ "RUBYOPT" => nil, "WEB_CONCURRENCY" => nil }, *@lane.command(words), in: File::NULL, %i[out err] => log, chdir: @root)
    end

    def await(what, log)
      Bench.await(PATIENCE) { yield File.read(log) } or abort "bench/instructions: #{what}: not within #{PATIENCE} s\n#{File.read(log)}"
    end

    def pipelined(port, batches)
      TCPSocket.open("127.0.0.1", port) do |socket|
        batches.times do
          socket.write("#{REQUEST}\r\n" * BATCH)
          answers = +""
          answers << socket.readpartial(65_536) until answers.scan(ANSWER_ENDS).size == BATCH
        end
      end
    end

    def kept(port, batches)
      sockets = Array.new(BATCH) { TCPSocket.new("127.0.0.1", port).tap { |socket| socket.setsockopt(:TCP, :NODELAY, true) } }
      batches.times do
        sockets.each { |socket| socket.write("#{REQUEST}\r\n") }
        sockets.each { |socket| socket.readpartial(4096).end_with?(ANSWER_ENDS) or abort "bench/instructions: a wrong answer" }
      end
    ensure
      sockets&.each(&:close)
    end

    def anew(port, batches)
      batches.times do
        sockets = Array.new(BATCH) { TCPSocket.new("127.0.0.1", port).tap { |socket| socket.write("#{REQUEST}Connection: close\r\n\r\n") } }
        sockets.each { |socket| socket.read.end_with?(ANSWER_ENDS) or abort "bench/instructions: a wrong answer" }
        sockets.each(&:close)
      end
    end
  end

  # The limits of a request's instructions.
  module InstructionTargets
    # The figures that were published last: a lane's, and what a whole hello request takes, garbage collection included, which is what
    # the native part is compared with.
    PUBLISHED = File.join(Lane::ROOT, "bench/instructions.json")

    # Shares of a whole request.
    SEEING = 0.01
    ACCESS_LOG = 0.06
    # Digits that are patched into a template take half of it, and three times the code.
    JSON_LOG = 0.12

    # To what is published.
    SAME = 1.01
    THREADS = 1.05

    # @param figures [Hash{String => Numeric}] instructions: `pipelined`, `combined` and `json` of the native part, the
    #   others of the whole worker
    def self.check(figures, published, lane)
      request = published.fetch("request")
      before = published.fetch("lanes").fetch(lane, {})
      share = ->(instructions) { instructions&.fdiv(request) }
      more = ->(one, other) { figures[one] && figures[other] && (figures[one] - figures[other]) }
      ratio = ->(one, other) { figures[one] && before[other] && figures[one].fdiv(before[other]) }
      [
        verdict("monitor, share of a request", share.(more.("worker with monitor", "worker")&.clamp(0..)), SEEING),
        verdict("access log, combined, share of a request", share.(more.("combined", "pipelined")), ACCESS_LOG),
        verdict("access log, JSON, share of a request", share.(more.("json", "pipelined")), JSON_LOG),
        verdict("hello kept, to what is published", ratio.("kept", "kept"), SAME),
        verdict("hello-tcp, to what is published", ratio.("tcp", "tcp"), SAME),
        verdict("hello kept with MaxThreads 5, to what is published with 1", ratio.("kept, five threads", "kept"), THREADS)
      ]
    end

    def self.verdict(subject, value, limit)
      Targets::Verdict.new("instructions", subject, value, limit, false)
    end
    private_class_method :verdict

    def self.published
      JSON.parse(File.read(PUBLISHED))
    end

    # Replaces a lane's.
    def self.publish(figures, lane)
      all = published
      all["lanes"][lane] = %w[kept tcp].to_h { |name| [name, figures.fetch(name).round] }
      File.write(PUBLISHED, "#{JSON.pretty_generate(all)}\n")
    end
  end
end
