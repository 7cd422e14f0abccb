# frozen_string_literal: true

require "json"
require "open3"
require_relative "statistics"

module Bench
  # Loads a server with the program of bench/load: so many clients, each of which sends its next request when it has its
  # answer and has paused. They keep their connections, or connect anew for each request. The seed alone decides their
  # requests, the order of these, and the pauses between them.
  #
  # wrk is no match here: it corrects its percentiles for pauses that it did not expect, draws what it asks for each
  # connection, so that a faster server gets another mix of requests than a slower one, and does not know of a connection
  # that is never answered.
  class ClosedLoop
    # One answered request: its kind, whether its client connects anew for each request, and microseconds of the pause before it, from
    # its beginning to its answer, and inside the app (nil when that says nothing).
    Sample = Struct.new(:request, :new, :pause_us, :latency_us, :service_us)

    # Seconds after which a run that ends by a number of requests is given up.
    LONGEST = 120
    # The program's way to say that an app says nothing.
    NO_SERVICE = (2**32) - 1
    DIR = File.expand_path("..", __dir__)
    private_constant :LONGEST, :NO_SERVICE, :DIR

    # @return [String] path of the program, which is built before its first use
    # @raise [RuntimeError] when it cannot be built
    def self.program
      @built ||= system("cargo", "build", "--release", "--locked", "--quiet", chdir: DIR) || raise("load cannot be built: cargo build --release in #{DIR}")
      File.join(DIR, "target/release/load")
    end

    # @param requests [Hash{Request => Integer}] what is asked, and the weight of each
    # @param close [Boolean] whether the requests ask for the connection to be closed
    # @param pause_ms [Float, nil] mean of the exponential pauses
    # @param options [Hash{Symbol => Object}] more of the program's, see load/src/options.rs: `new` clients, `new_pause_ms`, `routers`,
    #   `pipeline`, `per_connection`, `threads`, `patience_s`, `seed`
    def initialize(endpoint:, requests:, connections:, close: false, pause_ms: nil, **options)
      @requests = requests.keys
      @words = ["--address", endpoint.to_s, *requests.flat_map { |request, weight| ["--request", "#{weight} #{request.to_s(close: close)}"] },
                *words(options.merge(connections: connections))]
      @pause_ms = pause_ms
    end

    # @param seconds [Numeric] in which requests are begun; the last answers are waited for
    # @param pauses [Boolean] with the pauses, if there are any
    # @return [Hash] `requests` that were answered; `duration_us`, how long they were begun, and `in_time`, how many were
    #   answered by then; `in_part`, how many answers of batches had come by then that were not complete; `p50_us`, `p95_us`, `p99_us`, `max_us`; `errors` by kind; `clients`, how many of them were
    #   `served_every_second`, and `longest_gap_us`, the longest that one of them went without an answer while it was
    #   asking, less what the app took; all `samples` in the order of the plan; and, where some clients connect anew, requests, latencies and
    #   gaps of `kept` and `new` ones
    def for_seconds(seconds, pauses: true) = run(seconds: seconds, pause_ms: pauses ? @pause_ms : nil)

    # @param requests [Integer] how many to make
    def for_requests(requests) = run(seconds: LONGEST, requests: requests, pause_ms: @pause_ms, threads: 1)

    private

    def words(options) = options.compact.flat_map { |name, value| ["--#{name.to_s.tr("_", "-")}", value.to_s] }

    def run(more)
      output, error, status = Open3.capture3(self.class.program, *@words, *words(more), binmode: true)
      raise "load: #{error}" unless status.success?

      line, samples = output.split("\n", 2)
      result(JSON.parse(line, symbolize_names: true), samples.unpack("V*").each_slice(5).map { |numbers| sample(*numbers) })
    end

    def sample(kind, new, pause, latency, service) = Sample.new(@requests[kind], new == 1, pause, latency, service == NO_SERVICE ? nil : service)

    def result(told, samples)
      kept, new = told.delete(:waits_us)
      result = told.merge(figures(samples, kept + new), samples: samples)
      return result if new.empty?

      own = samples.partition { |sample| !sample.new }
      result.merge(kept: figures(own.first, kept), new: figures(own.last, new))
    end

    def figures(samples, waits)
      latencies = samples.map(&:latency_us).sort
      percentiles = [50, 95, 99].to_h { |percent| [:"p#{percent}_us", Statistics.percentile(latencies, percent) || 0] }
      { requests: samples.size, **percentiles, max_us: latencies.last || 0, clients: waits.size,
        served_every_second: waits.count { |wait| wait <= 1_000_000 }, longest_gap_us: waits.max || 0 }
    end
  end
end
