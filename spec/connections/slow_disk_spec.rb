# frozen_string_literal: true

RSpec.describe "C4 A disk that takes nothing", once: "the engine writes bodies and responses" do
  before(:context) do
    @folder = Dir.mktmpdir("fastrack-disk")
    @library = File.join(@folder, "slow_disk.so")
    source = File.join(Server::ROOT, "bench/support/slow_disk.c")
    skip "takes a C compiler" unless system("cc", "-shared", "-fPIC", "-o", @library, source, "-ldl")
  end

  after(:context) { FileUtils.remove_entry(@folder) }

  let(:gate) { File.join(@folder, "gate-#{rand(1 << 32)}") }

  # The disk takes nothing before the gate is open.
  def serve_slowly(**options)
    serve_kept(options: options, env: { "LD_PRELOAD" => @library, "SLOW_DISK" => gate })
  end

  def open_disk = File.write(gate, "")
  def body = @body ||= Random.new(1).bytes(5_000_000)
  def answer = "#{@worker} #{body.bytesize} #{Digest::MD5.hexdigest(body)}"
  def files = ProcessTable.descriptors(@worker).values.count { |target| target&.match?(%r{\A(?!/memfd:).* \(deleted\)\z}) }

  # Clients that send as much of a body as the server takes.
  def uploads(count = 1)
    Array.new(count) do
      one = peer
      # One that is aborted is closed meanwhile.
      one.tap { Thread.new { one.write(KeptPeer.request("/body", verb: "POST", body: body)) rescue IOError } }
    end.tap { eventually { files.positive? } }
  end

  [1, 3].each do |threads|
    it "holds up uploads, and nobody else (#{threads} thread(s))" do
      serve_slowly(MaxThreads: threads)
      kept = peer.tap { |one| one.get("/pid") }
      one, other = uploads(2)
      chunked = peer.tap { |client| Thread.new { client.write(KeptPeer.chunked("/body", *body.scan(/.{1,30000}/mn))) } }
      3.times { expect([kept.get("/pid").status, server.get("/pid").status]).to eq([200, 200]) }
      expect(peer.ask("/body", verb: "POST", body: "x" * 500_000).answer.status).to eq(200)
      expect([one, other, chunked].map { |client| client.anything_within?(0.1) }).to eq([false] * 3)
      open_disk
      expect([one, other, chunked].map { |client| client.answer.body }).to eq([answer] * 3)
      expect(one.get("/pid").body.to_i).to eq(@worker)
    end

    it "holds up no client where the worker is busy (#{threads} thread(s))" do
      serve_slowly(MaxThreads: threads)
      occupy(*%w[a b c].first(threads))
      one, = uploads
      slow = peer(slow: true)
      slow.write("POST /body HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
      # The helper has accepted and read that.
      slow.read_until(/100 Continue\r\n\r\n/)
      open_disk
      %w[a b c].first(threads).each { |name| open_gate(name) }
      expect(one.answer.body).to eq(answer)
      expect(slow.write("abc").read_until(/200 OK/)).to include("200 OK")
    end
  end

  it "is no fault of the client's: BodyTimeout does not count while it is waited for" do
    # The client itself takes far less between two parts, also on a busy machine.
    serve_slowly(BodyTimeout: timeout = GcMode.patient(1.5))
    one, = uploads
    expect(one.anything_within?(timeout * 1.3)).to be(false)
    open_disk
    expect(one.answer.body).to eq(answer)
  end

  it "costs the worker little memory, however many clients send" do
    serve_slowly
    resident = -> { File.read("/proc/#{@worker}/status")[/^RssAnon:\s+(\d+)/, 1].to_i >> 10 }
    before = resident.call
    all = uploads(150)
    expect(peer.get("/pid").status).to eq(200)
    # Nothing is received any more.
    eventually(20) { resident.call.then { |size| sleep(0.5) && resident.call == size } }
    expect(resident.call - before).to be < 64
    open_disk
    expect(all.map { |one| one.answer.body }.uniq).to eq([answer])
  end

  it "is left by a client that goes away" do
    serve_slowly
    one, = uploads
    one.abort
    open_disk
    eventually { files.zero? }
    expect(ProcessTable.cpu_seconds_within(1.5, @worker)).to be < 0.3
    expect_worker_alive
  end

  it "is waited for when the worker is replaced (HUP)" do
    serve_slowly
    one, = uploads
    server.signal(:HUP)
    successor = eventually(20) { server.workers.find { |worker| worker != @worker } }
    open_disk
    expect(one.answer.body).to end_with(answer.delete_prefix(@worker.to_s))
    expect(server.await_workers(1)).to eq([successor])
  end

  it "holds up the thread whose response it takes, and no other" do
    serve_slowly(MaxThreads: 2)
    one = peer(slow: true).ask("/array/60000000")
    eventually { calls_of("/array/60000000") == 1 && files == 1 }
    3.times { expect(server.get("/pid").status).to eq(200) }
    open_disk
    expect(one.answer.body.bytesize).to eq(60_000_000)
  end
end
