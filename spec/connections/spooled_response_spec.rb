# frozen_string_literal: true

RSpec.describe "C4 Responses that are longer than what slow readers take", once: "the engine keeps them and sends them on" do
  parts = 256
  size = parts * 65_536
  # No two parts are the same.
  digest = Digest::MD5.hexdigest(Array.new(parts) { |number| format("%08d", number) * 8192 }.join)

  # Each of these bodies has 16 MB: /chunked, /length with that said before, /quiet/NAME with a pause behind it until the file
  # NAME is there, /fork and then the files of a forked child. /small has 0.9 MB, and /endless goes on until it is left.
  # /pid and /files tell of the worker.
  app = <<~'RUBY'
    NOTES = File.join(__dir__, "calls")
    note = ->(line) { File.write(NOTES, "#{Process.pid} #{line}\n", mode: "a") }
    files = -> { Dir.children("/proc/self/fd").map { |fd| File.readlink("/proc/self/fd/#{fd}") rescue nil }.grep(/\A(?!\/memfd:).*\(deleted\)/) }
    part = ->(number) { format("%08d", number) * 8192 }
    body = Class.new do
      define_method(:initialize) { |count, &rest| @count, @rest = count, rest }
      define_method(:each) do |&block|
        @count.times { |number| block.call(part.call(number)) }
        @rest&.call(block)
      end
    end
    pause = ->(name) { sleep 0.005 until File.exist?(name) }
    child = lambda do
      reader, writer = IO.pipe
      pid = fork { writer.write(files.call.join(" ")) && exit!(0) }
      writer.close
      Process.wait(pid)
      "child: #{reader.read}"
    end
    run(lambda { |env|
      _, what, name = env["PATH_INFO"].split("/")
      headers = { "content-type" => "text/plain" }
      note.call(env["PATH_INFO"])
      env["rack.after_reply"]&.push(-> { note.call("/done#{env["PATH_INFO"]}") })
      answer = case what
               when "chunked" then body.new(256)
               when "length" then headers["content-length"] = (256 * 65_536).to_s and body.new(256)
               when "small" then body.new(14)
               when "quiet" then body.new(256) { |block| pause.call(name) || block.call("end") }
               when "fork" then body.new(256) { |block| block.call(child.call) }
               when "endless" then body.new(0) { |block| begin loop { block.call("x" * 65_536) && sleep(0.001) } ensure note.call("/left") end }
               when "files" then [files.call.size.to_s]
               else [Process.pid.to_s]
               end
      [200, headers, answer]
    })
  RUBY

  # @param options [Hash] of a server with one worker, unless they say otherwise
  define_method(:serve_long) { |options: {}, **keywords| serve(app, options: options, **keywords) }

  # Clients that read nothing before the spec has them read.
  def slow_readers(count, path) = Array.new(count) { peer(slow: true).ask(path) }
  def noted(path) = server.lines_of("calls").count { |line| line.split[1] == path }

  # Clients that read nothing, and the worker is done with their responses.
  def served_readers(count, path) = slow_readers(count, path).tap { eventually(20) { noted("/done#{path}") == count } }

  # Temporary files that a process has open.
  def spools(pid) = ProcessTable.descriptors(pid).values.count { |target| target&.match?(%r{\A/(?!dev/null|memfd:).* \(deleted\)\z}) }

  define_method(:expect_whole) do |reader|
    body = reader.answer.body
    expect([body.bytesize, Digest::MD5.hexdigest(body)]).to eq([size, digest])
  end

  # The only worker waits for the client.
  def expect_waiting_and_whole
    reader = slow_readers(1, "/chunked").first
    eventually { noted("/chunked") == 1 }
    waiting = peer.ask("/pid")
    expect(waiting.anything_within?(0.5)).to be(false)
    expect_whole(reader)
    expect(waiting.answer.status).to eq(200)
  end

  [1, 3].each do |threads|
    describe "with #{threads} thread(s) in the only worker" do
      %w[/chunked /length].each do |path|
        it "do not hold it up (#{path}), and arrive whole" do
          serve_long(options: { "MaxThreads" => threads })
          readers = slow_readers(5, path)
          expect(server.get("/pid").body.to_i).to eq(@worker)
          eventually(20) { noted(path) == 5 }
          expect(server.get("/pid").body.to_i).to eq(@worker)
          readers.each { |reader| expect_whole(reader) }
          expect(readers.map { |reader| reader.get("/pid").body.to_i }.uniq).to eq([@worker])
        end
      end

      it "go on to the client while the app has nothing to send" do
        serve_long(options: { "MaxThreads" => threads })
        reader = peer(slow: true).ask("/quiet/gate", version: "1.0")
        eventually { noted("/quiet/gate") == 1 }
        reader.hurry
        head = reader.read_until(/\r\n\r\n/)[/\A.*?\r\n\r\n/m].bytesize
        reader.read_until_size(head + size)
        open_gate("gate")
        expect(Digest::MD5.hexdigest(reader.read_to_end.byteslice(head, size))).to eq(digest)
        expect(reader.received).to end_with("end")
      end
    end
  end

  it "do not hold it up without a ResponseBuffer" do
    serve_long(options: { "ResponseBuffer" => 0 })
    readers = served_readers(2, "/chunked")
    expect(server.get("/pid").status).to eq(200)
    readers.each { |reader| expect_whole(reader) }
  end

  it "are in a file without a name until they have been taken, if they are longer than the ResponseBuffer" do
    serve_long
    small = served_readers(1, "/small").first
    expect(spools(@worker)).to eq(0)
    taken, left = served_readers(2, "/chunked")
    expect(spools(@worker)).to eq(2)
    expect_whole(taken)
    left.abort
    eventually { spools(@worker).zero? }
    expect([small.answer.body.bytesize, server.get("/files").body]).to eq([14 * 65_536, "0"])
  end

  { "0" => "without a spool", "1M" => "with a full one" }.each do |most, which|
    it "have the worker wait for the client #{which}, and arrive whole" do
      serve_long(options: { "MaxResponseSpool" => most })
      expect_waiting_and_whole
    end
  end

  it "end for the app when the client leaves" do
    serve_long
    reader = slow_readers(1, "/endless").first
    eventually { spools(@worker) == 1 }
    reader.abort
    eventually(20) { noted("/left") == 1 }
    eventually { spools(@worker).zero? }
    expect_worker_alive
  end

  it "end for the app when the client takes nothing for WriteTimeout, and are reset where the app has passed them" do
    serve_long(options: { "WriteTimeout" => 3 })
    slow_readers(1, "/endless")
    eventually(20) { noted("/left") == 1 }
    reader = served_readers(1, "/chunked").first
    eventually(20) { reader.cut_off? }
    eventually { spools(@worker).zero? }
    expect_worker_alive
  end

  it "are no business of a child that the app forks" do
    serve_long
    reader = peer(slow: true).ask("/fork", version: "1.0")
    eventually(20) { noted("/done/fork") == 1 }
    expect(spools(@worker)).to eq(1)
    reader.hurry
    expect(reader.read_to_end.byteslice(-20, 20)).to end_with("child: ")
  end

  describe "where the disk takes nothing" do
    let(:folder) { Dir.mktmpdir("fastrack-spool") }

    after { FileUtils.rm_rf(folder) }

    def expect_a_line(reason)
      line = /cannot keep the rest of a response in #{folder} \(#{reason}.*slow clients \(worker \d+\)$/
      eventually(20, -> { server.log }) { server.log.scan(line).size == 1 }
    end

    it "have the worker wait for the client, arrive whole, and leave a line in the log: no room" do
      mounted = system("mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", folder, %i[out err] => File::NULL)
      skip "needs root, and a kernel that lets it mount" unless mounted
      serve_long(env: { "TMPDIR" => folder })
      expect_waiting_and_whole
      expect_a_line("No space left on device")
    ensure
      system("umount", "--lazy", folder) if mounted
    end
  end

  describe "when their worker ends" do
    it "go on with its successor (HUP)" do
      serve_long
      readers = served_readers(3, "/chunked")
      successor = server.renew([@worker]).first
      eventually(20) { !ProcessTable.alive?(@worker) }
      eventually { spools(successor) == 3 }
      readers.each { |reader| expect_whole(reader) }
      expect(readers.first.get("/pid").body.to_i).to eq(successor)
    end

    it "are sent by it when the server stops (TERM), which waits for that" do
      serve_long
      readers = served_readers(3, "/chunked")
      server.signal(:TERM)
      readers.each { |reader| expect_whole(reader) }
      expect(server.wait.exitstatus).to eq(0)
    end
  end
end
