# frozen_string_literal: true

RSpec.describe "D19 The memory that slow readers take", alone: "figures of memory", once: "the engine keeps what they have not taken" do
  # /string/MB, /array/MB and /file/MB have bodies of so many MB, /each/KB one of so many KB in parts. /gc frees what the app has left, and
  # gives it back to the system.
  let(:app) { <<~'RUBY' }
    part = "x" * 65_536
    file = Struct.new(:to_path) { def each = raise }
    run(lambda { |env|
      _, what, size = env["PATH_INFO"].split("/")
      body = case what
             when "string" then ["x" * (size.to_i << 20)]
             when "array" then Array.new(size.to_i << 4) { part.dup }
             when "file" then file.new(File.join(__dir__, "file").tap { |path| File.write(path, part * (size.to_i << 4)) unless File.exist?(path) })
             when "each" then Enumerator.new { |parts| (size.to_i >> 6).times { parts << part } }
             else [Process.pid.to_s].tap { GC.start.then { Fastrack.trim_heap } }
             end
      [200, { "content-type" => "text/plain" }, body]
    })
  RUBY

  # In MB: without files that are mapped, and without memory that is shared.
  def resident(pid) = File.read("/proc/#{pid}/status")[/^RssAnon:\s+(\d+)/, 1].to_i >> 10

  # A client that has its response's head, and reads nothing more. Unix sockets hold 0.2 MB of it.
  def reader(path)
    UNIXSocket.new(@socket).tap do |socket|
      socket.write("GET #{path} HTTP/1.0\r\n\r\n")
      head = +""
      head << socket.readpartial(1) until head.end_with?("\r\n\r\n")
    end
  end

  # Expects that the only worker has grown by less than so many MB while so many clients read nothing of their responses.
  def expect_growth(limit, count, path, **options)
    Dir.mktmpdir do |folder|
      @socket = File.join(folder, "app.sock")
      server = Server.start(ru: app, options: { MaxWorkers: 1, Path: @socket, **options })
      worker = server.await_workers(1).first
      reader("/gc").close
      before = resident(worker)
      readers = Array.new(count) { reader(path) }
      Eventually.eventually(Server::DEADLINE, -> { "#{resident(worker) - before} MB" }) do
        reader("/gc").close
        resident(worker) - before < limit
      end
      readers.each(&:close)
    end
  end

  { "24 of a String of 16 MB" => [24, "/string/16"], "20 of an Array of 20 MB" => [20, "/array/20"],
    "200 of 0.9 MB in parts" => [200, "/each/960"] }.each do |which, (count, path)|
    it "is less than 64 MB in a worker: #{which}" do
      expect_growth(64, count, path)
    end
  end

  # Each thread's stack may still refer to its last String.
  it "is no more where several threads answer them" do
    expect_growth(64 + (3 * 16), 24, "/string/16", MaxThreads: 3)
  end

  it "is next to nothing for files" do
    expect_growth(16, 24, "/file/16")
  end
end
