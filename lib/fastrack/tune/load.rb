# frozen_string_literal: true

require "net/http"
require_relative "../log"

module Fastrack
  module Tune
    # Clients that get one path after the other, each on a connection of its own.
    class Load
      # Seconds of a request that are this client's.
      OWN_TIME = 0.0005

      # Seconds that a response may take.
      PATIENCE = 60

      # The share of a path's requests that may fail before it is no measure.
      FAILING = 0.05

      # @return [Hash{String => Hash{Integer, nil => Integer}}] by path: how often it was answered with which status; nil: not at all
      attr_reader :answers

      # Loads until the time is over.
      def initialize(port, paths, clients:, seconds:)
        @port = port
        @paths = paths
        @deadline = now + seconds
        @answers = {}
        @time = 0.0
        @lock = Mutex.new
        Array.new(clients) { |number| Thread.new { client(number) } }.each(&:join)
      end

      # @return [Boolean] also where there is no answer at all
      def self.failure?(status) = status.nil? || status >= 400

      # @param statuses [Hash] as in #answers
      # @return [String] "GET /x: 404 (12 times)", with what has failed
      def self.describe(path, statuses)
        failed = statuses.select { |status, _| failure?(status) }
        "GET #{path}: #{failed.map { |status, count| "#{status || "no answer"} (#{Log.count(count, "time")})" }.join(", ")}"
      end

      # @return [Integer] requests with an answer that is no failure
      def requests = total - failures

      # @return [Integer] all others
      def failures = @answers.values.sum { |statuses| failed(statuses) }

      # @return [Float] seconds that one of the requests has taken
      def mean = @time / requests

      # @return [Array<String>] paths of which too many requests have failed
      def failing = @answers.select { |_, statuses| failed(statuses) > statuses.values.sum * FAILING }.keys

      private

      def total = @answers.values.sum { |statuses| statuses.values.sum }

      def failed(statuses) = statuses.sum { |status, count| Load.failure?(status) ? count : 0 }

      def client(number)
        http = connection
        (number..).each do |index|
          break if (started = now) >= @deadline

          path = @paths[index % @paths.size]
          status = get(http, path)
          note(path, status, now - started)
          # An app that is not there would be asked as fast as this can.
          sleep(0.01) unless status
        end
      ensure
        http&.finish if http&.started?
      end

      def note(path, status, seconds)
        @lock.synchronize do
          statuses = @answers[path] ||= Hash.new(0)
          statuses[status] += 1
          @time += seconds unless Load.failure?(status)
        end
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

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
