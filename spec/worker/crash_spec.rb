# frozen_string_literal: true

# A request that ends its worker's process, where the process learns of it before it is over.
RSpec.describe "A request that ends its worker" do
  ru = <<~'RUBY'
    require "fiddle"
    ABORT = Fiddle::Function.new(Fiddle.dlopen(nil)["abort"], [], Fiddle::TYPE_VOID)
    HERE = File.dirname(File.expand_path(__FILE__))
    DEEP = ->(depth) { [depth].each { |one| DEEP.call(one + 1) } }
    ENDS = {
      "/segv" => -> { Process.kill(:SEGV, Process.pid) },
      "/fpe" => -> { Process.kill(:FPE, Process.pid) },
      "/null" => -> { Fiddle::Pointer.new(8, 8)[0] },
      "/native-abort" => -> { ABORT.call },
      "/exit!" => -> { exit! },
      "/process-exit!" => -> { Process.exit!(3) },
      "/kernel-exit!" => -> { Kernel.exit!(true) },
      "/thread-exit!" => -> { Thread.new { exit!(4) }; sleep },
      "/exec" => -> { exec("true") },
      "/process-exec" => -> { Process.exec({ "A" => "b" }, ["true", "yes"], "c", chdir: "/") },
      "/shell-exec" => -> { exec("true && exit 6") },
      "/no-program" => -> { exec("no-such-program", "a") },
      "/no-line" => -> { exec("no-such-program a") },
      "/failed-exec" => -> { exec("true", "x" * 1_000_000) },
      "/exit" => -> { exit(5) },
      "/abort" => -> { abort("enough") },
      "/wrong-exit!" => -> { exit!("x") },
      "/huge-exit!" => -> { exit!(2**70) },
      "/raised-exit!" => -> { TracePoint.new(:c_return) { |at| raise "a trap" if at.method_id == :prepare_exit }.enable { exit!(6) } },
      # What the server's exit! calls at last.
      "/stuck-exit!" => -> { Process.define_singleton_method(:exit!) { |*| sleep }; Process.exit!(3) },
      "/hang" => -> { sleep },
      "/deep" => -> { DEEP.call(0) },
      # Found out by a fault, where Ruby code finds it out itself.
      "/native-deep" => -> { Marshal.dump(1_000_000.times.inject([]) { |inner, _| [inner] }) },
      "/fork" => -> { Process.wait(fork { exit!(7) }) },
      "/fork-segv" => -> { Process.wait(fork { Process.kill(:SEGV, Process.pid) }) }
    }
    run lambda { |env|
      ends = ENDS[env["PATH_INFO"]]
      case env["QUERY_STRING"]
      when "half" then return [200, { "content-type" => "text/plain" }, Enumerator.new { |parts| parts << "half"; ends.call }]
      when "wait"
        File.write(File.join(HERE, "waiting"), "")
        sleep 0.01 until File.exist?(File.join(HERE, "go"))
      end
      ends&.call
      [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
    }
  RUBY

  define_method(:serve) do |workers: 1, **options|
    Server.start(ru: ru, options: { MaxWorkers: workers, ErrRespawnInterval: 0.05, **options }).tap { |server| server.await_workers(workers) }
  end

  # What a death is called in the master's log.
  def ending(server, pid)
    Eventually.eventually(10, -> { server.log[-2000..] }) { server.log[/^fastrack: worker \d \(pid #{pid}\) (.*)$/, 1] }
  end

  # One for all whose worker ends or fails and whose clients are alone.
  before(:context) { @server = serve }

  def worker = @server.get("/").body.to_i

  {
    "/segv" => "was killed by SIG", "/fpe" => "was killed by SIGFPE",
    "/null" => "was killed by SIG", "/native-abort" => "was killed by SIGABRT", "/exit!" => "exited with status 1",
    "/process-exit!" => "exited with status 3", "/kernel-exit!" => "exited", "/thread-exit!" => "exited with status 4",
    "/raised-exit!" => "exited with status 6",
    "/exec" => "exited", "/process-exec" => "exited", "/shell-exec" => "exited with status 6", "/failed-exec" => "exited with status 1"
  }.each do |path, manner|
    it "is answered with 502, and ends it all the same: #{path}" do
      pid = worker
      response = @server.get(path)
      expect([response.status, response.headers["connection"]]).to eq([502, "close"])
      expect(ending(@server, pid)).to start_with(manner).and include(" while serving GET #{path} for ")
      expect(@server.get("/").status).to eq(200)
    end
  end

  it "is answered without a body where the method is HEAD" do
    bytes = @server.raw("HEAD /segv HTTP/1.1\r\nHost: h\r\n\r\n")
    expect(bytes).to match(%r{\AHTTP/1.1 502 Bad Gateway\r\nDate: \w{3}, \d\d \w{3} \d{4} [\d:]{8} GMT\r\n.*\r\n\r\n\z}m)
  end

  %w[/segv /null /native-abort /exit!].each do |path|
    it "is cut off by a reset where a part of the response has left: #{path}" do
      received, how = HttpPeer.exchange(@server, "GET #{path}?half HTTP/1.0\r\n\r\n")
      expect([received[/half\z/], how]).to eq(["half", :reset])
    end
  end

  { "/exit" => "exited with status 5", "/abort" => "exited with status 1" }.each do |path, manner|
    it "by an exception is answered with 500: #{path}" do
      pid = worker
      expect([@server.get(path).status, ending(@server, pid)]).to match([500, start_with(manner)])
    end
  end

  ["/deep", "/native-deep", "/wrong-exit!", "/huge-exit!", "/no-program", "/no-line"].each do |path|
    it "is no request that only raises: #{path}" do
      pid = worker
      2.times { expect(@server.get(path).status).to eq(500) }
      expect(@server.get("/").body.to_i).to eq(pid)
    end
  end

  ["/fork", "/fork-segv"].each do |path|
    it "is no request whose child ends so: #{path}" do
      pid = worker
      expect([@server.get(path).body.to_i, worker]).to eq([pid, pid])
    end
  end

  %w[/segv /exec].each do |path|
    it "loses no other connection of the worker: #{path}" do
      server = serve
      pid = server.workers.first
      idle = Array.new(3) { KeptPeer.new(server).tap { |peer| expect(peer.get("/").body.to_i).to eq(pid) } }
      waiting = KeptPeer.new(server).tap { |peer| peer.get("/") }
      ending = Thread.new { server.get("#{path}?wait") }
      Eventually.eventually { File.exist?(File.join(server.dir, "waiting")) }
      waiting.ask("/")
      server.write("go", "")
      expect(ending.value.status).to eq(502)
      others = [waiting.answer, *idle.map { |peer| peer.get("/") }].map { |response| response.body.to_i }
      expect(others.uniq).to eq([server.await_workers(1).first])
      expect(others).not_to include(pid)
    end
  end

  it "is the end of it after 15 s where exit! itself does not end it, and the service goes on meanwhile" do
    server = serve(workers: 2)
    asked = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    expect(server.get("/stuck-exit!").status).to eq(502)
    stuck = eventually(40) do
      expect(server.get("/").status).to eq(200)
      server.log[/^fastrack: worker (\d+) was about to end and has not: it is ended$/, 1]
    end
    expect(Process.clock_gettime(Process::CLOCK_MONOTONIC) - asked).to be > 14
    expect(ending(server, stuck)).to start_with("exited with status 134")
    expect(server.await_workers(2)).not_to include(stuck.to_i)
  end

  context "with an upload that has begun" do
    def upload(server)
      HttpPeer.open(server) do |peer|
        peer.write("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 10\r\n\r\nabc")
        server.get("/")
        server.get("/segv")
        yield peer
        HttpResponse.parse(peer.read_to_end).status
      end
    end

    it("passes it on to another worker") { expect(upload(serve) { |peer| peer.write("defghij") }).to eq(200) }

    it "answers it with 502 if nobody else can take the rest" do
      expect(upload(serve(HandOver: false)) { |_peer| nil }).to eq(502)
    end
  end

  it "leaves an app alone that lives on after SIGABRT, and its requests are watched as before" do
    server = Server.start(ru: %(trap("ABRT") { File.write("trapped", "") }\n#{ru}), options: { MaxWorkers: 1, RequestTimeout: 1 })
    pid = server.await_workers(1).first
    server.get("/")
    server.signal(:ABRT, to: pid)
    eventually { File.exist?(File.join(server.dir, "trapped")) }
    expect([server.get("/").body.to_i, server.get("/hang").status]).to eq([pid, 504])
  end

  it "leaves a handler alone that a library has set before, which may live by such faults" do
    handler = <<~'RUBY'
      require "fiddle/import"
      # siglongjmp and the like are C's: a handler in libc stands for that of a library.
      LIBC = Fiddle.dlopen("libc.so.6")
      SIGNAL = Fiddle::Function.new(LIBC["signal"], [Fiddle::TYPE_INT, Fiddle::TYPE_VOIDP], Fiddle::TYPE_VOIDP)
      SIGNAL.call(Signal.list["FPE"], LIBC["abs"])
    RUBY
    server = Server.start(ru: handler + ru, options: { MaxWorkers: 1 })
    pid = server.await_workers(1).first
    response = server.get("/fpe")
    expect([response.status, response.body.to_i]).to eq([200, pid])
  end
end
