# frozen_string_literal: true

require "json"
require_relative "process_tree"

module Bench
  # Loads a server with wrk(1): so many connections, each of which sends its next request when it
  # has its answer.
  class LoadGenerator
    SCRIPT = File.expand_path("load.lua", __dir__)
    # Seconds without an answer after which wrk counts a timeout, and that it may take to end.
    TIMEOUT = 10
    # Seconds after which a run that ends by a number of requests is given up.
    LONGEST = 120
    private_constant :SCRIPT, :TIMEOUT, :LONGEST

    # @param request_file [String] path of the bytes to send
    # @param endpoints [Array<Endpoint::Tcp>] shared out over wrk's threads
    # @param concurrency [Integer] connections
    # @param think_ms [Float, nil] mean pause of a connection before a request
    def initialize(request_file:, endpoints:, concurrency:, think_ms: nil)
      @endpoints = endpoints
      @concurrency = concurrency
      @environment = { "BENCH_REQUEST" => request_file, "BENCH_REQUESTS" => nil,
                       "BENCH_ADDRESSES" => endpoints.join(" "), "BENCH_THINK_MS" => think_ms&.to_s }
    end

    # @param seconds [Numeric] a fraction of a second will do
    # @param think [Boolean] with the pauses, if there are any
    # @return [Hash] `requests`, `duration_us`, `bytes`, `p50_us`, `p95_us`, `p99_us`, `max_us` and
    #   `errors`, a Hash by kind
    def for_seconds(seconds, think: true)
      run(threads, think ? @environment : @environment.merge("BENCH_THINK_MS" => nil), seconds)
    end

    # @param requests [Integer] how many answers to wait for; those under way are not cut off at
    #   the server, so up to `concurrency` more are asked
    # @return [Hash] as #for_seconds
    def for_requests(requests)
      run(1, @environment.merge("BENCH_REQUESTS" => requests.to_s), LONGEST)
    end

    private

    # One thread for each core that it shares with the server, but one at least for each endpoint.
    def threads = [2, @endpoints.size].max

    # wrk's own clock knows whole seconds only; INT ends it in good order at any time.
    def run(threads, environment, seconds)
      command = ["wrk", "-t", threads, "-c", [@concurrency, threads].max,
                 "-d", "#{seconds.ceil + 1}s", "--timeout", "#{TIMEOUT}s", "-s", SCRIPT,
                 "http://#{@endpoints.first}/"].map(&:to_s)
      IO.popen([environment, *command], err: %i[child out]) do |wrk|
        await_handler(wrk.pid)
        output = read(wrk, seconds, until_line: "ENOUGH")
        Process.kill(:INT, wrk.pid)
        output << read(wrk, TIMEOUT)
        parse(output)
      ensure
        # Without this, popen would wait for as long as wrk runs, whatever went wrong here.
        Process.kill(:KILL, wrk.pid)
      end
    end

    # Before it has a handler for it, INT ends it without a word; it sets the handler when its threads have begun. Of the
    # signals' mask the lowest bit is for signal 1 (proc(5), SigCgt).
    def await_handler(pid)
      bit = 1 << (Signal.list.fetch("INT") - 1)
      sleep 0.002 until File.read("/proc/#{pid}/status")[/^SigCgt:\s*(\h+)/, 1].to_s.hex.anybits?(bit) || !ProcessTree.alive?(pid)
    rescue Errno::ENOENT, Errno::ESRCH
      # It has ended; what it has printed tells why.
      nil
    end

    # What it prints within so many seconds, or until it prints a line or ends.
    def read(wrk, seconds, until_line: nil)
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
      output = +""
      loop do
        left = deadline - Process.clock_gettime(Process::CLOCK_MONOTONIC)
        return output unless left.positive? && wrk.wait_readable(left)

        output << wrk.readpartial(4096)
        return output if until_line && output.include?(until_line)
      end
    rescue EOFError
      output
    end

    def parse(output)
      result = output[/^RESULT (.*)$/, 1] or raise "wrk gave no result: #{output}"
      JSON.parse(result, symbolize_names: true)
    end
  end
end
