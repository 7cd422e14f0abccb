# frozen_string_literal: true

RSpec.describe "C4 Connections, when something goes wrong" do
  # The descriptors of the worker, once they are what they were before or time is up.
  def expect_no_leak(worker, before)
    eventually(10, -> { "#{before} descriptors before, and now: #{ProcessTable.descriptors(worker).values.tally}" }) do
      ProcessTable.descriptors(worker).size <= before
    end
  end

  describe "clients that vanish", once: "limits of the kernel" do
    before(:context) { serve_kept }

    body = "b" * 2_000_000
    stages = {
      "before the head" => [""], "in the head" => ["GET /pid HTTP/1.1\r\nHo"],
      "in a body that is in memory" => [KeptPeer.request("/body", verb: "POST", body: body[0, 9000])[0, 4000]],
      "in a body that is in a file" => [KeptPeer.request("/body", verb: "POST", body: body)[0, 1_500_000]],
      "in a body in chunks" => [KeptPeer.chunked("/body", *Array.new(40, body[0, 50_000]))[0, 1_500_000]],
      "after their request" => [KeptPeer.request("/pid")], "after many requests" => [KeptPeer.request("/pid") * 100],
      "in a response" => [KeptPeer.request("/array/20000000")],
      "in a response of unknown length" => [KeptPeer.request("/each/200/100000")],
      "in the answer to a bad request" => ["GARBAGE\r\n\r\n"]
    }

    stages.each do |stage, (bytes)|
      it "#{stage} leave nothing behind, on new connections and kept ones, with the worker idle and busy" do
        server.get("/pid")
        before = ProcessTable.descriptors(@worker).size
        %i[close abort].each do |manner|
          ones = kept_peers(3) + Array.new(3) { peer }
          ones.each { |one| one.write(bytes) }
          server.get("/pid") unless stage.include?("unknown")
          ones.each(&manner)
          busy_with("gate#{journal.lines.size}") do |late|
            late.each { |one| Thread.new { one.write(bytes) }.join(20) && one.public_send(manner) }
          end
        end
        expect_worker_alive
        expect_no_leak(@worker, before)
      end
    end

    # Kept peers whose worker is in the app during the block.
    def busy_with(name)
      late = kept_peers(3)
      occupy(name)
      yield late
      open_gate(name)
    end
  end

  it "a worker that hands over and takes over leaks no descriptor" do
    serve_kept(workers: 2)
    busy = lambda do |name|
      (occupier, *ones), = peers_of_one_worker(4)
      occupier.ask("/gate/#{name}")
      await_gate(name)
      ones.each { |one| one.get("/body", verb: "POST", body: "x" * 1_500_000) }
      open_gate(name)
      occupier.answer
      Clients.close_all
    end
    busy.call("first")
    workers = server.workers
    before = eventually { workers.map { |pid| ProcessTable.descriptors(pid).size }.tap { |sizes| break sizes if workers.all? { |pid| sockets(pid) <= 6 } } }
    5.times { |index| busy.call("again#{index}") }
    workers.zip(before) { |pid, count| expect_no_leak(pid, count) }
  end

  let(:few) { ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh"] }

  # From GET /take on all descriptors are taken, until the file `give` is there. Answers with the size of the body.
  let(:taking) { <<~RUBY }
    files = []
    take = lambda do
      loop { files << File.open(File::NULL) }
    rescue Errno::EMFILE
      Thread.new { sleep 0.01 until File.exist?("give"); files.each(&:close).clear }
    end
    run lambda { |env|
      take.call if env["PATH_INFO"] == "/take"
      [200, { "content-type" => "text/plain" }, [env["rack.input"].read.bytesize.to_s]]
    }
  RUBY

  describe "without descriptors", once: "limits of the kernel" do
    it "new clients take the places of idle ones, and nothing spins" do
      serve_kept(wrapper: few)
      idle = Array.new(150) { peer.tap { |one| one.get("/pid") } }
      expect(server.get("/pid").status).to eq(200)
      mute = Array.new(150) { peer }
      expect([ProcessTable.cpu_seconds_within(1.5, @worker), server.get("/pid").status]).to match([be < 0.3, 200])
      # Those that had to go were closed in an orderly way.
      expect(idle.first(50).map(&:closed_without_a_word?).uniq).to eq([true])
      mute.each(&:close)
      expect_worker_alive
    end

    # The app leaves so many free.
    { "a client" => 0, "a new client" => 1 }.each do |who, left|
      it "#{who} that asks while the only worker is busy is answered after that, though the app has taken all but #{left} of them" do
        serve(<<~RUBY, wrapper: few)
          files = []
          run lambda { |env|
            begin
              loop { files << File.open(File::NULL) } if env["PATH_INFO"] == "/take"
            rescue Errno::EMFILE
              files.pop(#{left}).each(&:close)
              # That takes none.
              Dir.mkdir("taken")
              sleep 0.01 until File.exist?("go on")
            end
            [200, { "content-type" => "text/plain" }, ["fine"]]
          }
        RUBY
        taker, *others = kept_peers(2 - left)
        taker.ask("/take")
        eventually { File.exist?(File.join(server.dir, "taken")) }
        other = others.first || peer
        other.ask("/pid")
        eventually { other.taken? }
        server.write("go on", "")
        expect([taker, other].map { |one| one.answer.body }).to eq(%w[fine fine])
      end
    end

    it "the worker waits for better times when the app has taken all of them, and then goes on", :quiet do
      serve(taking, wrapper: few)
      taker = peer
      expect(taker.get("/take", "Connection: close").status).to eq(200)
      waiting = Array.new(3) { peer.ask("/pid") }
      eventually { server.log.include?("cannot accept") }
      expect(ProcessTable.cpu_seconds_within(1.5, @worker)).to be < 0.3
      expect(server.log.scan("cannot accept").size).to be < 10
      server.write("give", "")
      expect(waiting.map { |one| one.answer.body }.uniq).to eq(["0"])
    end
  end

  describe "without a descriptor for the file of a body", once: "limits of the kernel" do
    before { serve(taking, wrapper: few) }

    { "a known length" => ["3000000 bytes", ->(body) { KeptPeer.request("/body", verb: "POST", body: body) }],
      "chunks" => ["unknown length", ->(body) { KeptPeer.chunked("/body", *body.scan(/.{1,50000}/m)) }] }.each do |what, (size, request)|
      it "a client that sends one of #{what} gets 503, and the log says what happened and what to do" do
        one, taker = kept_peers(2)
        expect(taker.get("/take").status).to eq(200)
        writer = Thread.new { one.write(request.call("x" * 3_000_000)) }
        expect([one.answer.status, one.closed_without_a_word?]).to eq([503, true])
        writer.join
        expect(taker.get("/pid").status).to eq(200)
        line = "fastrack: cannot buffer a request body of #{size} in a file: no free file descriptor (limit 64); raise `ulimit -n` (worker #{@worker})\n"
        eventually(20, -> { server.log }) { server.log.lines.include?(line) }
        server.write("give", "")
        eventually { peer.get("/body", verb: "POST", body: "x" * 3_000_000).body == "3000000" }
        expect_worker_alive
      end
    end
  end

  describe "without room for a body", once: "limits of the kernel" do
    include Folder

    let(:upload) { KeptPeer.request("/body", verb: "POST", body: "x" * 3_000_000) }

    def expect_clear_answer(one, upload)
      writer = Thread.new { one.write(upload) }
      expect([one.answer.status, one.closed_without_a_word?]).to eq([503, true])
      writer.join
      expect(calls).not_to include("/body")
      expect(server.get("/pid").status).to eq(200)
      expect(eventually { server.log.lines.grep(/cannot keep a request's body/).first }).not_to be_nil
    end

    # A new client sends a body of a known length, and a kept one chunks.
    def expect_clear_answers
      expect_clear_answer(peer, upload)
      expect_clear_answer(peer.tap { |one| one.get("/pid") }, KeptPeer.chunked("/body", *Array.new(60, "x" * 50_000)))
    end

    it "where no file can be made, the client gets 503, and the log a line" do
      skip "mounts take root's rights" unless system("unshare", "-m", "true", err: File::NULL)
      aside = ['mount --bind "$PWD" /mnt', "mount -t tmpfs tmpfs /tmp", 'mkdir -p "$PWD"', 'mount --bind /mnt "$PWD"', 'cd "$PWD"',
               "mount -o remount,ro /tmp", "mount -t tmpfs -o ro tmpfs /var/tmp"]
      serve_kept(wrapper: ["unshare", "-m", "sh", "-c", "#{aside.join(" && ")} && exec \"$@\"", "sh"])
      expect_clear_answers
    end

    it "where the disk is full, the client gets 503, and the log a line, and there is room again afterwards" do
      skip "a disk of its own takes root's rights" unless system("unshare", "-m", "true", err: File::NULL)
      on_small_disk = 'mount -t tmpfs -o size=1536k tmpfs "$0" && exec "$@"'
      serve_kept(wrapper: ["unshare", "-m", "sh", "-c", on_small_disk, @dir], env: { "TMPDIR" => @dir })
      expect_clear_answers
      expect(peer.ask("/body", verb: "POST", body: "x" * 1_200_000).answer.body).to include(" 1200000 ")
    end

    it "where the file cannot grow, the client gets 503, and the log a line, whether the worker is idle or busy" do
      # In units of 512 bytes. A disk that is full would not send the signal.
      serve("trap(:XFSZ, 'IGNORE')\n#{HttpApps.ru(:kept)}", wrapper: ["sh", "-c", 'ulimit -f 4000; exec "$@"', "sh"])
      expect_clear_answer(peer, upload)
      one = peer.tap { |kept| kept.get("/pid") }
      occupy("a")
      writer = Thread.new { one.write(upload) }
      expect(one.answer.status).to eq(503)
      open_gate("a")
      writer.join
      expect_worker_alive
    end
  end

  it "what the app forks holds no client's socket, whatever the helper is at" do
    serve_kept
    idle = kept_peers(3)
    uploading = peer.write("POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 50000000\r\n\r\n")
    over = false
    writer = Thread.new { 500.times { over ? break : uploading.write("x" * 100_000) } }
    forker = kept_peers(2)
    links = Array.new(20) { |index| forker[index % 2].get("/fork/go").body.split }
    expect(links.flatten.grep(/socket:/)).to eq([])
    over = true
    writer.join
    last = idle.first.get("/pid", "Connection: close")
    # The children live, and yet the end gets through.
    expect([last.status, idle.first.closed_without_a_word?]).to eq([200, true])
    one, two = idle.drop(1)
    occupy("a")
    # Answered one after the other: the fork comes between two requests of one client.
    one.write(KeptPeer.request("/pid") + KeptPeer.request("/pid", "Connection: close"))
    eventually { one.taken? }
    two.ask("/fork/go")
    open_gate("a")
    expect([one.answer.status, one.answer.status]).to eq([200, 200])
    expect(one).to be_closed_without_a_word
  ensure
    open_gate("go")
  end
end
