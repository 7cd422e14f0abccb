# frozen_string_literal: true

require_relative "gc_mode"
require_relative "http_peer"

# What the specs of hostile acts share: one server, what a client sees of an act, and whether the service is a moment later
# what it was before.
module Hostile
  # How often the master looks, made short: else some acts would wait for nothing else.
  QUICK = <<~RUBY
    Fastrack::WorkerTimeout.send(:remove_const, :INTERVAL)
    Fastrack::WorkerTimeout.const_set(:INTERVAL, 0.1)
  RUBY

  OPTIONS = { MaxWorkers: 2, MaxRequestPerChild: 0, ErrRespawnInterval: 0.05, WorkerTimeout: 3, GracefulTimeout: 3, Linger: 1 }.freeze

  # With what the acts of a table have in them.
  def self.app(acts = [])
    lambdas = acts.each_with_index.map { |code, index| "#{"/#{index}".inspect} => ->(env) { #{code} }" }
    <<~RUBY
      require "digest"
      require "fiddle"
      require "net/http"
      require "stringio"
      DEEP = ->(depth) { [depth].each { |one| DEEP.call(one + 1) } }
      ABORT = Fiddle::Function.new(Fiddle.dlopen(nil)["abort"], [], Fiddle::TYPE_VOID)
      HERE = Dir.pwd
      LATER = ->(&block) { Thread.new { sleep 0.05; block.call } }
      TRIPLET = Class.new(Array)
      ACTS = {
        #{lambdas.join(",\n  ")}
      }
      # What an app may rely on in each request, whatever was done in another one.
      SEEN = lambda { |env|
        fixed = env.select { |key, value| key.is_a?(String) && (value.is_a?(String) || value == true || value == false) }
        fixed.except("REMOTE_PORT", "SERVER_PORT").sort.inspect
      }
      run lambda { |env|
        act = ACTS[env["PATH_INFO"]]
        answer = act&.call(env)
        next answer if act && answer.is_a?(TRIPLET)

        case env["PATH_INFO"]
        when "/slow"
          File.write(File.join(HERE, "slow"), "")
          sleep 0.01 until File.exist?(File.join(HERE, "go"))
        when "/upload" then next [200, { "content-type" => "text/plain" }, [env["rack.input"].read.bytesize.to_s]]
        when "/large" then next [200, { "content-type" => "text/plain" }, Array.new(80, "l" * 100_000)]
        when "/each" then next [200, { "content-type" => "text/plain" }, Enumerator.new { |parts| 2000.times { parts << "e" * 10_000 } }]
        end
        [200, { "content-type" => "text/plain" }, [act ? "done" : SEEN.call(env)]]
      }
    RUBY
  end

  def self.answer(triplet) = "TRIPLET.new(#{triplet})"

  # A server for a whole file, and what it is like while all is well.
  def serve_hostile(acts = [], options: {}, **keywords)
    config = "#{QUICK}#{keywords.delete(:config)}"
    @server = Server.start(ru: Hostile.app(acts), options: OPTIONS.merge(options), config: config, **keywords)
    @server.await_workers(OPTIONS[:MaxWorkers])
    4.times { look }
    @seen = look
    @open = settled { open_files }
  end

  def server = @server

  # What a client sees whose request is in the app while the block runs.
  def view_during
    in_the_app do
      client = Thread.new { view("/slow") }
      await_app
      yield
      server.write("go", "")
      client.value
    end
  end

  # One request to /slow, which stays in the app until there is a file `go`.
  def in_the_app
    yield
  ensure
    %w[slow go].each { |name| FileUtils.rm_f(File.join(server.dir, name)) }
  end

  def await_app = eventually { File.exist?(File.join(server.dir, "slow")) }

  # What a client sees that asks for a path: the status, :cut when a response begins and does not end as it should, :nothing
  # when the connection ends without a byte.
  def view(path, bytes: "GET #{path} HTTP/1.1\r\nHost: #{server.host}:#{server.port}\r\nConnection: close\r\n\r\n")
    received, = HttpPeer.exchange(server, bytes)
    status_of(received)
  end

  def status_of(received)
    received.empty? ? :nothing : HttpResponse.all(received).last.status
  rescue HttpResponse::Malformed
    :cut
  end

  # A second later, or as soon as may be: all workers are there and nothing else, none has more open than before, and each kind
  # of request is answered as ever.
  def expect_order
    await_all
    expect(Array.new(6) { look }).to all(eq(@seen))
    # An act may have taken what this one needs, and give it back only now.
    eventually(20, "an upload") { server.request("POST", "/upload", { "Content-Length" => 1_500_000 }, "u" * 1_500_000).body == "1500000" }
    eventually(20, -> { "open before: #{@open}, now: #{open_files}: #{server.workers.map { |pid| ProcessTable.descriptors(pid) }}" }) { open_files.all? { |kind, count| count <= @open[kind] } }
    # What an act does later may come only now.
    await_all
  end

  private

  def await_all
    eventually(30, -> { "workers #{server.workers}, others #{others}, zombies #{zombies}\n#{server.log[-2000..]}" }) { complete? }
  end

  def look = server.get("/").body

  def complete?
    workers = server.workers
    workers.size == OPTIONS[:MaxWorkers] && others(workers).empty? && zombies(workers).empty?
  end

  # What was started here, and is neither the master nor a worker.
  def others(workers = server.workers) = server.processes - [server.pid, server.master, *server.molds, *workers]
  def zombies(workers = server.workers) = ProcessTable.zombies(server.master, *workers)

  def open_files
    counts = server.workers.map { |pid| descriptors(pid) }
    { master: descriptors(server.master), worker: counts.max.to_i }
  end

  def descriptors(pid)
    ProcessTable.descriptors(pid).size
  rescue Errno::ENOENT
    0
  end

  # The value of a block when it has not changed for some looks.
  def settled
    values = []
    eventually do
      values = [*values.last(9), yield]
      values.size == 10 && values.uniq.size == 1
    end
    values.last
  end
end
