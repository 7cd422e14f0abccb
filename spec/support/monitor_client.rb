# frozen_string_literal: true

require "json"
require "socket"
require_relative "clients"

# A client of a server's monitor.
class MonitorClient
  Answer = Struct.new(:status, :head, :body)

  attr_reader :path

  # @param place [String, Integer] the socket's path, or a port
  def initialize(place) = @path = place
  def connect = Clients.keep(@path.is_a?(Integer) ? TCPSocket.new("127.0.0.1", @path) : UNIXSocket.new(@path))
  def ask(verb, target, headers = {})
    socket = connect
    lines = { "Host" => "localhost" }.merge(headers).map { |name, value| "#{name}: #{value}\r\n" }.join
    socket.write("#{verb} #{target} HTTP/1.1\r\n#{lines}\r\n")
    raise "no answer to #{verb} #{target}" unless socket.wait_readable(GcMode.patient(Server::DEADLINE))

    head, body = socket.read.split("\r\n\r\n", 2)
    Answer.new(head[/\AHTTP\S+ (\d+)/, 1].to_i, head, body)
  ensure
    socket&.close
  end

  def get(target, headers = {}) = ask("GET", target, headers)
  def post(target, headers = {}) = ask("POST", target, headers)
  def status = JSON.parse(get("/status.json").body)

  # Waits until the status is so.
  def await(message = nil)
    last = nil
    Eventually.eventually(Server::DEADLINE, -> { "#{message}: #{last}" }) do
      last = status
      last if yield(last)
    rescue Errno::ENOENT, Errno::ECONNREFUSED, Errno::ECONNRESET, Errno::EPIPE, NoMethodError
      nil
    end
  end

  # @return [Hash{String => Float}] by name and labels
  def metrics
    get("/metrics").body.lines.grep_v(/\A#/).to_h do |line|
      name, value = line.chomp.rpartition(" ").values_at(0, 2)
      [name, Float(value)]
    end
  end
end
