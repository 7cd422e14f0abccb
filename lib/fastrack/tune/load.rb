# frozen_string_literal: true

require "net/http"

module Fastrack
  module Tune
    # Clients that get one path after the other, each on a connection of its own.
    class Load
      # Seconds of a request that are this client's.
      OWN_TIME = 0.0005

      # Seconds that a response may take.
      PATIENCE = 60

      # @return [Array<Float>] seconds
      attr_reader :latencies
      # @return [Integer] requests without an answer, or with a status of 500 or more
      attr_reader :failures

      def initialize(port, paths, clients:)
        @port = port
        @paths = paths
        @clients = clients
        @latencies = []
        @failures = 0
      end

      # @yieldparam passed [Float] seconds
      # @return [Load] self
      def run(seconds)
        started = now
        threads = Array.new(@clients) { |number| Thread.new { client(number, started + seconds) } }
        while now < started + seconds
          sleep([0.2, started + seconds - now].min.clamp(0..))
          yield [now - started, seconds].min if block_given?
        end
        threads.map(&:value).each do |latencies, failures|
          @latencies.concat(latencies)
          @failures += failures
        end
        self
      end

      private

      def client(number, deadline)
        latencies = []
        failures = 0
        http = connection
        (number..).each do |index|
          break if now >= deadline

          started = now
          status = get(http, @paths[index % @paths.size])
          status && status < 500 ? latencies << (now - started) : failures += 1
          # An app that is not there would be asked as fast as this can.
          sleep(0.01) unless status
        end
        [latencies, failures]
      ensure
        http&.finish if http&.started?
      end

      def connection
        http = Net::HTTP.new("127.0.0.1", @port, nil)
        http.open_timeout = http.read_timeout = PATIENCE
        http.keep_alive_timeout = PATIENCE
        http.max_retries = 0
        http
      end

      # @return [Integer, nil] nil without a response
      def get(http, path)
        http.start unless http.started?
        http.get(path, "User-Agent" => "fastrack tune").code.to_i
      rescue SystemCallError, IOError, Timeout::Error, Net::ProtocolError
        http.finish if http.started?
        nil
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end
  end
end
