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

      # @return [Integer] requests with an answer
      attr_reader :requests
      # @return [Integer] requests without an answer, or with a status of 500 or more
      attr_reader :failures

      # Loads until the time is over.
      def initialize(port, paths, clients:, seconds:)
        @port = port
        @paths = paths
        @deadline = now + seconds
        found = Array.new(clients) { |number| Thread.new { client(number) } }.map(&:value)
        @requests, @failures, @time = found.transpose.map(&:sum)
      end

      # @return [Float] seconds that a request has taken
      def mean = @time / @requests

      private

      # @return [Array(Integer, Integer, Float)] requests, failures, and the seconds of the former together
      def client(number)
        requests = failures = 0
        time = 0.0
        http = connection
        (number..).each do |index|
          break if (started = now) >= @deadline

          status = get(http, @paths[index % @paths.size])
          if status && status < 500
            requests += 1
            time += now - started
          else
            failures += 1
          end
          # An app that is not there would be asked as fast as this can.
          sleep(0.01) unless status
        end
        [requests, failures, time]
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
