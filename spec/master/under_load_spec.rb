# frozen_string_literal: true

require "zlib"
require_relative "../spec_helper"
require_relative "../support/slow_crowd"
require_relative "../support/wrk"

# Workers are recycled all the time meanwhile: MaxRequestPerChild is 1,000 by default. With LOAD=full there are 100 slow
# clients of each kind, for 14 s.
RSpec.describe "Under the load of wrk, with the default MaxWorkers and MaxRequestPerChild" do
  full = ENV["LOAD"] == "full"
  # Clients of each kind; seconds that an upload and a download take; bytes of a body that is an Array or a file, or sent.
  crowd, sending, taking = full ? [100, 12, 14] : [16, 3, 4]
  array, file, upload = full ? [8_000_000, 24_000_000, 60_000] : [4_000_000, 6_000_000, 60_000]
  max_workers = 5
  keep_alive_timeout = 2
  # Seconds that a close may come late. The whole suite runs on machines that stand still for a moment.
  lateness = GcMode.patient(full ? 1 : 4)

  app = <<~RUBY
    part = [*0...100_000].pack("N*")
    array = [part * #{array / 400_000}].freeze
    path = File.join(__dir__, "large").tap { |name| File.binwrite(name, part * #{file / 400_000}) }
    file = Class.new { define_method(:to_path) { path } }.new
    run lambda { |env|
      body = { "/array" => array, "/file" => file }.fetch(env["PATH_INFO"]) { [env["rack.input"].read] }
      [200, { "content-type" => "text/plain", "content-length" => (body == file ? #{file} : body[0].bytesize).to_s }, body]
    }
  RUBY

  # What is seen of the server meanwhile.
  let(:processes) { [] }
  let(:closed_after) { [] }

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  # MB that the largest worker has in memory: proc(5), `statm`.
  def largest(server)
    server.workers.map { |pid| File.read("/proc/#{pid}/statm").split[1].to_i * 4096 / 1e6 }.max
  rescue SystemCallError
    # One of them has been replaced.
    retry
  end

  def get(path)
    "GET #{path} HTTP/1.1\r\nHost: a\r\n\r\n"
  end

  def downloads(server, path, count, seconds, size)
    checksum = Zlib.crc32([*0...100_000].pack("N*") * (size / 400_000))
    Array.new(count) { SlowCrowd::Client.new(server, get(path), takes_for: seconds, size: size, checksum: checksum) }
  end

  def uploads(server, count, seconds, size)
    Array.new(count) do |index|
      body = Random.new(index).bytes(size)
      request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: #{size}\r\n\r\n".b << body
      SlowCrowd::Client.new(server, request, sends_for: seconds, size: size, checksum: Zlib.crc32(body))
    end
  end

  # Connections that have had an answer and then say nothing, with the time of it.
  def idle(server, count)
    Array.new(count) { server.connect }.to_h do |socket|
      socket.write(get("/"))
      socket.readpartial(4096)
      [socket, now]
    end
  end

  # Notes those that the server has closed since the last look.
  def look_at(idle)
    ready, = IO.select(idle.keys, nil, nil, 0) unless idle.empty?
    ready&.each { |socket| closed_after << (now - idle.delete(socket)) if socket.read_nonblock(1, exception: false).nil? }
    idle
  end

  it "slow clients get all they came for, idle ones are closed in time, and neither processes nor memory grow", :quiet, alone: "memory, and clients that take their time" do
    skip "wrk is not installed" unless Wrk.installed?
    server = Server.start(ru: app, options: { KeepAliveTimeout: keep_alive_timeout })
    first = server.await_workers(max_workers)
    # Memory is compared with that of workers that have served.
    Wrk.run(server, kept: false) { eventually { (first - server.workers).any? } }
    server.await_workers(max_workers)
    before = largest(server)
    failures = nil
    ordinary = Wrk.run(server, kept: true) do
      clients = downloads(server, "/array", crowd / 2, taking, array) + downloads(server, "/file", crowd / 2, taking, file) +
                uploads(server, crowd, sending, upload)
      left = idle(server, crowd)
      failures = SlowCrowd.run(clients) do
        processes << server.workers.size
        look_at(left)
      end
      eventually { look_at(left).empty? }
    end
    eventually(20, -> { "#{largest(server)} MB after #{before} MB" }) { largest(server).then { |size| size if size <= 1.5 * before } }
    expect(failures + ordinary.failures).to eq([])
    expect(processes.max).to be <= max_workers + 2
    expect(closed_after.max).to be_between(keep_alive_timeout - 0.1, keep_alive_timeout + lateness)
  end
end
