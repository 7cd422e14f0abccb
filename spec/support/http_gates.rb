# frozen_string_literal: true

require_relative "http_apps"
require_relative "http_peer"
require_relative "http_apps/kept"

# For specs with HttpApps::Kept: clients that wait while the worker is busy, as many as the spec wants.
module HttpGates
  # So many clients in a row, and the engine takes the next one for granted: see crates/engine/src/accept/hint.rs.
  ROW = 40

  # Where a listener is, when a server has more than one.
  Place = Struct.new(:port) { def connect = TCPSocket.new("127.0.0.1", port) }

  def ask(*paths, place: server)
    paths.map { |path| HttpPeer.new(place).write("GET #{path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") }
  end

  # A client with half a request; what it has sent was read.
  def half_ask(path)
    HttpPeer.new(server).write("GET #{path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n").tap { server.get("/whoever-comes-later") }
  end

  # Returns when a request is in the app: the worker goes on when the gate is opened.
  def await_gate(name) = eventually(20) { calls.include?("/gate/#{name}") }
  def open_gate(name) = server.write(name, "")

  # Paths of all calls so far, in order, or those in one worker.
  def calls(worker = nil)
    journal.lines.map(&:split).filter_map { |pid, path| path if worker.nil? || pid == worker.to_s }
  end

  # A client of the app at the gate `second`, behind more than a row of clients; the worker is there.
  def worker_with_a_row(place: server)
    peers = ask("/gate/first", place: place)
    await_gate("first")
    peers += ask(*["/row"] * ROW, "/gate/second", place: place)
    open_gate("first")
    await_gate("second")
    peers
  end
end
