# frozen_string_literal: true

require_relative "http_helpers"
require_relative "http_gates"
require_relative "http_apps/kept"
require_relative "kept_peer"

# What the specs about connections share: servers with HttpApps::Kept, and their clients.
module KeptHelpers
  # A server for the example, or for all when called in a before(:context).
  def serve_kept(workers: 1, options: {}, **keywords)
    serve(HttpApps.ru(:kept), options: { "MaxWorkers" => workers }.merge(options), **keywords)
    server.await_workers(workers)
    server
  end

  # What a slow one does not read stays with the server, but for a few KB.
  def peer(slow: false) = KeptPeer.new(server, **(slow ? { receive_buffer: 4096 } : {}))

  # Peers that have been served once each, and so are kept now.
  def kept_peers(count) = Array.new(count) { peer.tap { |one| one.get("/pid") } }

  # A client that has sent a head and a part of the body (StreamBody); the app has been called.
  def begun(path, *lines, part: "")
    before = calls_of(path)
    peer.write("POST #{path} HTTP/1.1\r\nHost: a\r\n#{lines.map { |line| "#{line}\r\n" }.join}\r\n#{part}").tap do
      eventually { calls_of(path) > before }
    end
  end

  # Has workers busy until the gates are opened.
  def occupy(*names, kind: :gate)
    names.to_h do |name|
      peer.ask("/#{kind}/#{name}", "Connection: close")
      [eventually(20) { worker_of("/#{kind}/#{name}") }, name]
    end
  end

  # So many peers that one worker has, in a server with two, and that worker.
  def peers_of_one_worker(count)
    all = kept_peers((2 * count) - 1)
    all.group_by { |one| one.get("/pid").body.to_i }.map { |worker, peers| [peers.first(count), worker] }.find { |peers, _| peers.size == count }
  end

  def sockets(*pids) = pids.sum { |pid| ProcessTable.descriptors(pid).values.count { |target| target&.start_with?("socket:") } }

  # The same, once it has not changed for some looks. A worker that has handed a connection over closes its own descriptor a moment later.
  def settled_sockets(*pids)
    counts = []
    eventually { (counts = [*counts.last(9), sockets(*pids)]).size == 10 && counts.uniq.one? }
    counts.last
  end
  def worker_of(path) = journal.lines.map(&:split).find { |_, called| called == path }&.first&.to_i
  def calls_of(path) = calls.count(path)

  def seconds
    start = now
    yield
    now - start
  end
end
