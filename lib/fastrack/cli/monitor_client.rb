# frozen_string_literal: true

require "json"
require "socket"
require_relative "../error"
require_relative "../process/proc_stat"
require_relative "../process/safe_file"

module Fastrack
  # A client of a server's monitor, by the unix socket. Any process may answer there. So answers are limited in size and time, are checked,
  # and lose control characters.
  class MonitorClient
    # Seconds that an answer may take.
    ANSWER_TIME = 5

    # Bytes of the longest answer. The status of 1,024 workers has a quarter of it.
    LONGEST_ANSWER = 4 << 20

    # The largest number of an answer.
    LARGEST = (1 << 63) - 1

    # Keys that a status must have, and their types. Other keys are only shown.
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
    PROFILE = { "number" => Integer, "state" => String, "reason" => :text, "worker" => :number, "pid" => :number, "frames" => Array, "stacks" => Array }.freeze
    SENT = { "sent" => String, "pid" => Integer, "after" => Integer }.freeze
    KINDS = { number: [Numeric, NilClass], text: [String, NilClass], boolean: [TrueClass, FalseClass] }.freeze
    private_constant :STATUS, :WORKER, :ORDER, :EXIT, :MEMORY, :MOLD, :LISTENER, :PROFILE, :SENT, :KINDS

    # @return [String]
    attr_reader :path

    # @param path [String]
    def initialize(path)
      @path = path
    end

    # @return [Hash, nil] see docs/monitor.md; nil if nobody listens
    # @raise [Error]
    def status
      answer = ask("GET", "/status.json") or return
      found = parse(answer)
      check(found, STATUS)
      check_parts(found)
      foreign! unless found["server"] == "fastrack" && (@peer.nil? || [@peer, ProcStat.inner_pid(@peer)].include?(found["pid"]))
      found
    end

    # @param target [String]
    # @return [Hash, nil] the signal that the master has sent to itself, the master's pid, and the number of the last order before; nil if
    #   nobody listens
    # @raise [Error]
    def order(target) = ask("POST", target)&.then { |answer| parse(answer).tap { |sent| check(sent, SENT) } }

    # @return [Hash, nil] the last profile of this master's: number, state, reason, worker, pid, frames (number, name), stacks (count, numbers);
    #   nil before the first
    # @raise [Error]
    def profile
      answer = ask("GET", "/profile.json")
      return if answer.to_s.empty?

      found = parse(answer)
      check(found, PROFILE)
      named = found["frames"].all? { |one| one in [Integer, String] }
      counted = found["stacks"].all? { |one| one in [Integer, [*]] }
      named && counted ? found : foreign!
    end

    # @param found [Hash] last status of the server
    # @return [Array<Integer>] pids of the masters as this process sees them; empty if they are in another container
    def visible(found) = [@peer, *(found["other_master"] if @peer == found["pid"])].compact

    # @return [String] the text without control characters
    def self.printable(text) = text.to_s.dup.force_encoding(Encoding::UTF_8).scrub("?").gsub(/[^[:print:]]/, "?")

    private

    def foreign! = raise(Error, "the server at #{@path} is not the monitor of this version of Fastrack")

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

    # @return [Object] parsed JSON with printable text and usual numbers
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
      # Counters that a worker has overwritten may be any number.
      when Integer then value.clamp(-LARGEST, LARGEST)
      when Float then value.abs < LARGEST ? value : foreign!
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
      # ArgumentError: the path is too long for a socket.
      nil
    rescue SystemCallError => e
      raise Error, "the monitor at #{@path}: #{SafeFile.reason(e)}"
    end

    def exchange(request)
      answer = "".b
      UNIXSocket.open(@path) do |socket|
        @peer = peer(socket)
        socket.write(request)
        deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + ANSWER_TIME
        loop do
          # A master that is stopped (SIGSTOP) accepts the connection, and does not answer.
          left = deadline - Process.clock_gettime(Process::CLOCK_MONOTONIC)
          raise Error, "the monitor at #{@path} does not answer" unless left.positive? && socket.wait_readable(left)
          raise Error, "the monitor at #{@path} does not end its answer" if answer.bytesize > LONGEST_ANSWER

          answer << socket.readpartial(65_536)
        end
      end
    rescue EOFError
      answer
    end

    # @return [Integer, nil] pid of the process that listens, by the kernel (SO_PEERCRED, unix(7)); nil if the process is in another
    #   container or the system does not tell
    def peer(socket)
      return unless Socket.const_defined?(:SO_PEERCRED)

      pid = socket.getsockopt(:SOCKET, :PEERCRED).data.unpack1("l")
      pid if pid.positive?
    end
  end
end
