# frozen_string_literal: true

require "net/http"
require_relative "../log"

module Fastrack
  module Tune
    # Clients that request one path after the other, each client on a connection of its own.
    class Load
      # Seconds that the client itself takes for a request.
      OWN_TIME = 0.0005

      # Seconds that a response may take.
      TIMEOUT = 60

      # Most failures of a path that still counts, as a share of its requests.
      FAILING = 0.05

      # @return [Hash{String => Hash{Integer, nil => Integer}}] by path, numbers of answers by status; nil stands for no answer
      attr_reader :answers

      # Returns when the time is over.
      def initialize(port, paths, clients:, seconds:)
        @port = port
        @paths = paths
        @deadline = now + seconds
        @answers = {}
        @time = 0.0
        @lock = Mutex.new
        Array.new(clients) { |number| Thread.new { client(number) } }.each(&:join)
      end

      # @param status [Integer, nil] nil if there was no answer
      def self.failure?(status) = status.nil? || status >= 400

      # @param statuses [Hash] as in #answers
      # @return [String] such as "GET /x: 404 (12 times)"; only failures are in it
      def self.describe(path, statuses)
        failed = statuses.select { |status, _| failure?(status) }
        "GET #{path}: #{failed.map { |status, count| "#{status || "no answer"} (#{Log.count(count, "time")})" }.join(", ")}"
      end

      # @return [Integer] requests whose answer is no failure
      def requests = total - failures

      # @return [Integer] all others
      def failures = @answers.values.sum { |statuses| failed(statuses) }

      # @return [Float] seconds of one of these requests, on average
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
          # A client of an app that has gone would ask as fast as it can.
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
        http.open_timeout = http.read_timeout = TIMEOUT
        http.keep_alive_timeout = TIMEOUT
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
