# frozen_string_literal: true

require "json"
require "socket"
require_relative "../error"
require_relative "../process/safe_file"

module Fastrack
  # Asks a server's monitor by its unix socket. Who answers there may be anybody: answers are limited in size and time, are checked, and
  # have nothing in them that a terminal would take for orders.
  class MonitorClient
    # Seconds that an answer may take.
    PATIENCE = 5

    # Bytes of the longest answer. The status of 1,024 workers has a quarter of it.
    LONGEST = 4 << 20

    # What a status has at least, by key. More is only shown.
    STATUS = { "server" => String, "version" => String, "pid" => Integer, "phase" => String, "serves" => :boolean, "now" => Numeric, "uptime" => Numeric,
               "workers_wanted" => Integer, "workers_ready" => Integer, "stop_seconds" => Numeric, "workers" => Array, "listeners" => Array, "orders" => Array,
               "last_exits" => Array, "connections" => Hash, "master" => Hash }.freeze
    WORKER = { "nr" => Integer, "pid" => Integer, "state" => String, "uptime" => Numeric, "cpu_seconds" => :number, "requests" => :number, "rss" => :number,
               "pss" => :number, "private" => :number, "request" => :text, "request_seconds" => :number }.freeze
    ORDER = { "number" => Integer, "signal" => String, "state" => String, "reason" => :text, "pid" => :number }.freeze
    EXIT = { "worker" => Integer, "at" => Integer, "cause" => String, "text" => String }.freeze
    MEMORY = { "pss" => :number, "rss" => :number, "private" => :number }.freeze
    MOLD = { **MEMORY, "pid" => Integer, "generation" => Integer, "requests" => Integer }.freeze
    LISTENER = { "backlog" => :number, "limit" => :number }.freeze
    SENT = { "sent" => String, "pid" => Integer, "after" => Integer }.freeze
    KINDS = { number: [Numeric, NilClass], text: [String, NilClass], boolean: [TrueClass, FalseClass] }.freeze
    private_constant :STATUS, :WORKER, :ORDER, :EXIT, :MEMORY, :MOLD, :LISTENER, :SENT, :KINDS

    # @return [String]
    attr_reader :path

    # @param path [String]
    def initialize(path)
      @path = path
    end

    # @return [Hash, nil] see docs/monitor.md; nil where nobody listens
    # @raise [Error]
    def status
      answer = ask("GET", "/status.json") or return
      found = parse(answer)
      check(found, STATUS)
      check_parts(found)
      foreign! unless found["server"] == "fastrack" && [found["pid"], nil].include?(@peer)
      found
    end

    # @param target [String]
    # @return [Hash, nil] which signal the server has sent itself, its master's pid, and the number of its last order before; nil where
    #   nobody listens
    # @raise [Error]
    def order(target) = ask("POST", target)&.then { |answer| parse(answer).tap { |sent| check(sent, SENT) } }

    # @param found [Hash] its last status
    # @return [Array<Integer>] its masters; none if they are another container's
    def visible(found) = @peer ? found.values_at("pid", "other_master").compact : []

    # @return [String] without what a terminal would take for orders
    def self.printable(text) = text.to_s.dup.force_encoding(Encoding::UTF_8).scrub("?").gsub(/[^[:print:]]/, "?")

    private

    def foreign! = raise(Error, "what answers at #{@path} is no monitor of this version of Fastrack")

    def check_parts(found)
      { "workers" => WORKER, "orders" => ORDER, "last_exits" => EXIT, "listeners" => LISTENER }.each { |key, shape| found[key].each { |one| check(one, shape) } }
      check(found["master"], MEMORY)
      check(found["mold"], MOLD) if found["mold"]
      check(found, "generation" => :number, "requests" => :number, "other_master" => :number)
      foreign! unless found["pid"].positive? && found["connections"]["waiting"].is_a?(Integer)
    end

    def check(found, shape)
      fits = found.is_a?(Hash) && shape.all? { |key, kind| Array(KINDS.fetch(kind, kind)).any? { |one| found[key].is_a?(one) } }
      foreign! unless fits
    end

    # @return [Object] of printable text and usual numbers
    def parse(text)
      clean(JSON.parse(text))
    rescue JSON::ParserError, EncodingError
      foreign!
    end

    def clean(value)
      case value
      when String then self.class.printable(value)
      when Array then value.map { |one| clean(one) }
      when Hash then value.to_h { |key, one| [clean(key), clean(one)] }
      when Numeric then value.abs < 1 << 63 ? value : foreign!
      else value
      end
    end

    # @return [String, nil] the body
    def ask(verb, target)
      head, body = exchange("#{verb} #{target} HTTP/1.0\r\nHost: localhost\r\n\r\n").split("\r\n\r\n", 2)
      status = head.to_s[%r{\AHTTP/1\.\d (\d+)}n, 1].to_i
      return body.to_s if status.between?(200, 299)

      raise Error, "the monitor at #{@path} answers: #{status.zero? ? "nothing" : self.class.printable(body.to_s[0, 500]).strip}"
    rescue Errno::ENOENT, Errno::ECONNREFUSED, ArgumentError
      # No socket can have a path that is so long (ArgumentError).
      nil
    rescue SystemCallError => e
      raise Error, "the monitor at #{@path}: #{SafeFile.reason(e)}"
    end

    def exchange(request)
      answer = "".b
      UNIXSocket.open(@path) do |socket|
        @peer = peer(socket)
        socket.write(request)
        deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE
        loop do
          # A master that is stopped (SIGSTOP) is connected to, and says nothing.
          left = deadline - Process.clock_gettime(Process::CLOCK_MONOTONIC)
          raise Error, "the monitor at #{@path} does not answer" unless left.positive? && socket.wait_readable(left)
          raise Error, "the monitor at #{@path} does not end its answer" if answer.bytesize > LONGEST

          answer << socket.readpartial(65_536)
        end
      end
    rescue EOFError
      answer
    end

    # @return [Integer, nil] the process that listens there, by the kernel (SO_PEERCRED, unix(7)); nil if it is one of another container
    #   or the system does not tell
    def peer(socket)
      return unless Socket.const_defined?(:SO_PEERCRED)

      pid = socket.getsockopt(:SOCKET, :PEERCRED).data.unpack1("l")
      pid if pid.positive?
    end
  end
end
