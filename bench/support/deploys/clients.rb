# frozen_string_literal: true

require "net/http"
require "open3"
require_relative "frames"

module Deploys
  # Programs and libraries that keep connections, beside what is done to the server. Each prints or raises what it has lost.
  class Clients
    # How many connections each has, and the pause between two requests of one connection, for clients that do not load the server.
    CONNECTIONS = 4
    PAUSE = 0.02

    # @return [Hash{String => Array(Integer, Integer)}] requests and lost ones by the names of clients, once #join was called
    attr_reader :counts

    # @param port [Integer]
    # @param seconds [Integer] until the clients end
    # @param tls_port [Integer, nil] nil: without the client that wants TLS
    def initialize(port, seconds, tls_port: nil)
      @port = port
      @url = "http://127.0.0.1:#{port}/"
      @tls_url = "https://127.0.0.1:#{tls_port}/" if tls_port
      @frames = Frames.new(port)
      @ends_at = now + seconds
      @counts = Hash.new { |counts, name| counts[name] = [0, 0] }
    end

    def run
      asks = { "wrk" => -> { wrk }, "h2load, HTTP/1.1" => -> { h2load("--h1", @url) }, "h2load, HTTP/2" => -> { h2load_frames },
               "curl, HTTP/1.1" => -> { curl("--http1.1", @url) }, "curl, HTTP/2" => -> { curl("--http2", @tls_url) },
               "http.client" => -> { http_client }, "Net::HTTP" => -> { net_http } }
      asks.delete("curl, HTTP/2") unless @tls_url
      @threads = asks.map { |name, ask| Thread.new { note(name, *ask.call) until over? } }
      self
    end

    def over? = now >= @ends_at

    def join = @threads.each(&:join) && self

    # Has the clients end as soon as they can.
    def stop
      @ends_at = now
      join
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # Seconds of one run of a program: it cannot be told to end.
    def left = (@ends_at - now).ceil.clamp(1, 5)

    def note(name, requests, lost, text = nil)
      @counts[name] = @counts[name].zip([requests, lost]).map(&:sum)
      warn "#{name}: #{text}" if lost.positive?
    end

    def wrk
      text, = Open3.capture2e("wrk", "-t1", "-c#{CONNECTIONS}", "-d#{left}", @url)
      [text[/(\d+) requests in/, 1].to_i, text.scan(/(?:connect|read|write|timeout|responses:?) (\d+)/).flatten.sum(&:to_i), text]
    end

    def h2load(option, url)
      text, = Open3.capture2e("h2load", "-D2", "-c#{CONNECTIONS}", option, url)
      succeeded, *lost = text[/^requests: .*/].to_s.scan(/(\d+) (?:succeeded|failed|timeout)/).flatten.map(&:to_i)
      [succeeded.to_i, lost.sum, text]
    end

    # A client of HTTP/2 that has got GOAWAY makes no other connection, and counts requests that it has not sent as failed.
    def h2load_frames
      before = @frames.lost
      requests, _, text = h2load("-m8", "http://127.0.0.1:#{@frames.port}/")
      [requests, @frames.lost - before + text[/, (\d+) 5xx/, 1].to_i, text]
    end

    def curl(option, url)
      codes, = Open3.capture2e("curl", "-sSk", option, "--no-progress-meter", "-o", File::NULL, "-w", "%{http_code}\n", "#{url}?[1-200]")
      lines = codes.lines(chomp: true)
      [lines.size, lines.count { |line| line != "200" }, lines.tally]
    end

    def http_client
      text, errors, = Open3.capture3("python3", File.expand_path("http_client.py", __dir__), @port.to_s, left.to_s, CONNECTIONS.to_s, PAUSE.to_s)
      [text[/requests=(\d+)/, 1].to_i, text[/lost=(\d+)/, 1].to_i, errors]
    end

    # It connects again after a response that says `Connection: close`, and raises where a connection ends otherwise.
    def net_http
      requests = 0
      Net::HTTP.start("127.0.0.1", @port) do |http|
        http.max_retries = 0
        until over?
          requests += 1
          return [requests, 1, "status #{http.code}"] unless http.get("/").code == "200"

          sleep PAUSE
        end
      end
      [requests, 0]
    rescue SystemCallError, IOError => e
      [requests, 1, e.inspect]
    end
  end
end
