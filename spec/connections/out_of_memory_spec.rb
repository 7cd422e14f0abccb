# frozen_string_literal: true

RSpec.describe "C4 Connections, under a limit of memory (RLIMIT_AS)", once: "malloc of the engine" do
  # Bytes that the worker may still allocate, after /limit: more than one upload's, and less than all of them, or than /huge.
  room = 60_000_000

  app = <<~RUBY
    require "digest"
    Digest::MD5.hexdigest("loaded")
    # A method in C takes the memory: no frame of Ruby code is between it and the engine.
    greedy = Class.new(String) do
      alias_method :close, :reverse
      def each = yield "answered"
    end.new("x" * #{room + 20_000_000})
    large = ["x" * 8_000_000].freeze
    huge = ["x" * #{room + 20_000_000}].freeze
    answer = lambda { |env|
      case env["PATH_INFO"]
      when "/limit"
        Process.setrlimit(:AS, (File.read("/proc/self/status")[/^VmSize:\\s+(\\d+)/, 1].to_i * 1024) + #{room})
        [Process.pid.to_s]
      when "/large" then large
      when "/huge" then huge
      when "/greedy" then greedy
      when "/upload" then [Digest::MD5.hexdigest(env["rack.input"].read)]
      else [Process.pid.to_s]
      end
    }
    run ->(env) { [200, { "content-type" => "text/plain" }, answer.call(env)] }
  RUBY

  before do
    serve(app)
    expect(server.get("/limit").body.to_i).to eq(@worker)
  end

  # The server's lines about memory; at least one, and one per second at most.
  def lines = eventually { server.log.lines.grep(/\Afastrack: no memory for /).then { |found| found unless found.empty? } }
  def lines_of(text) = server.log.lines.grep(/#{text}/)
  def expect_others_served = expect(Array.new(5) { server.get("/pid").body.to_i }.uniq).to eq([@worker])

  # Each starts, all of them wait, each goes on.
  def upload(parts)
    clients = Array.new(90) { |index| [peer, parts.call(Random.new(index).bytes(900_000))] }
    clients.each { |one, (_, first, _)| one.write(first) }
    expect_others_served
    clients.map do |one, (digest, _, last)|
      one.write(last)
      answer = one.answer
      [answer.status, answer.status == 200 ? answer.body == digest : answer.headers["Connection"]]
    end
  end

  { "whose length is known" => ->(body) { KeptPeer.request("/upload", verb: "POST", body: body) },
    "in chunks" => ->(body) { KeptPeer.chunked("/upload", *body.scan(/.{1,30000}/mn)) } }.each do |what, request|
    it "uploads #{what} for which there is none get 503, the others are taken whole, and the worker goes on" do
      answers = upload(->(body) { request.call(body).then { |bytes| [Digest::MD5.hexdigest(body), bytes[0...-9], bytes[-9..]] } })
      # Ruby may lack memory for a body that the engine has taken: then the app fails.
      expect(answers.uniq - [[500, "close"]]).to contain_exactly([200, true], [503, "close"])
      expect(lines.grep(/no memory for a request, its client got 503/)).not_to be_empty
      expect_others_served
      # One after the other they fit again.
      eventually { Array.new(5) { |index| peer.write(request.call(Random.new(index).bytes(900_000))).answer.status }.uniq == [200] }
      expect_worker_alive
    end
  end

  it "responses that slow clients do not take leave room for others" do
    ones = Array.new(20) { peer(slow: true).ask("/large", "Connection: close") }
    expect_others_served
    ones.each(&:read_to_end)
    expect(ones.map { |one| [one.ending, one.received.bytesize > 8_000_000] }.uniq).to eq([[:closed, true]])
  end

  it "responses for which there is none are cut so that the client can tell, and the worker goes on" do
    one = peer(slow: true).ask("/huge", "Connection: close")
    expect_others_served
    one.read_to_end
    expect([one.ending, one.received.bytesize < room]).to eq([:reset, true])
    expect(lines.grep(/a slow client has not taken of its response, which was cut/)).not_to be_empty
    expect_others_served
    expect(peer.get("/large").body.bytesize).to eq(8_000_000)
    expect_worker_alive
  end

  it "a worker that lacks memory between two methods of the app's goes on, any number of times, and still hears signals" do
    expect(Array.new(5) { server.get("/greedy").body }.uniq).to eq(["answered"])
    expect(lines_of("failed to allocate memory").size).to eq(5)
    expect_worker_alive
    server.stop(:TERM, timeout: 10)
  end
end
