# frozen_string_literal: true

# What a request costs the kernel is most of what it costs at all.
RSpec.describe "the system calls of a hello request", :quiet, once: "what the engine asks of the kernel" do
  # Requests that are looked at, and those before them: as long as the worker does not know that clients keep coming, it
  # asks the poller before it accepts.
  requests = 20
  warm_up = 50

  app = <<~'RUBY'
    run lambda { |env|
      sleep 0.002 until env["PATH_INFO"] != "/gate" || File.exist?("go")
      [200, { "content-type" => "text/plain" }, ["hello"]]
    }
  RUBY

  before(:context) { @traces = Dir.mktmpdir("fastrack-traces") }
  after(:context) { FileUtils.remove_entry(@traces) }

  # All clients wait in the backlog while the first request lasts: else the helper puts them into the shared queue.
  def in_backlog = { "HandOver" => false }

  # The calls for the last requests of many, all of which wait already when the first one is served.
  def trace_of(count, before:)
    worker = server.await_workers(1).first
    peers = [HttpPeer.new(server).write(message("GET /gate HTTP/1.1", "Host: a", "Connection: close"))]
    trace = HttpStrace.new(@traces, worker)
    eventually(20) { trace.calls.any? { |call| call.arguments.include?("GET /gate ") } }
    peers += Array.new(before + count) do |index|
      HttpPeer.new(server).write(message("GET /#{index} HTTP/1.1", "Host: a", "Connection: close"))
    end
    server.write("go", "")
    expect(peers.map { |peer| HttpResponse.parse(peer.read_to_end).body }).to all(eq("hello"))
    window = []
    eventually(20) { (window = trace.window("/#{before}", "/#{before + count - 1}")).last&.name == "close" }
    window
  end

  # Other processes may have the processor for so long that a request lasts. One good try of so many will do.
  tries = 5

  # A look at what else there is, or what has to do with the helper thread, which looks after requests that take long: a
  # moment's wait for it, the timer that wakes it, and its interest in the connections, which ends with such a request.
  def look?(call)
    %w[futex timerfd_settime epoll_ctl].include?(call.name) || call.name == "epoll_wait" && call.arguments.end_with?(" 0")
  end

  # How long a client has been in the backlog: asked of one in each tick of the clock, which takes a millisecond at least.
  def without_backlog_times(calls)
    asked, others = calls.partition { |call| call.name == "getsockopt" && call.arguments.include?("TCP_INFO") }
    ticks = calls.minmax_by(&:time).map(&:time).reduce(:-).abs * 1000
    expect(asked.size).to be <= ticks + 2
    others
  end

  # The app makes objects, for which Ruby asks for memory now and then, and (3.4) gives it a name.
  def without_memory(calls)
    asked, others = calls.partition { |call| %w[brk mmap munmap madvise mprotect prctl].include?(call.name) }
    expect(asked.size).to be < calls.count { |call| call.name == "accept4" }
    others
  end

  [true, false].each do |unix|
    it "are exactly accept4, recvfrom, sendto and close #{unix ? "on a unix socket" : "over TCP"}", linux: "accept4(2)" do
      few_looks = (1..tries).any? do
        serve(app, unix: unix, wrapper: HttpStrace.wrapper(@traces), options: in_backlog)
        looks, calls = without_backlog_times(without_memory(trace_of(requests, before: warm_up))).partition { |call| look?(call) }
        expect(calls.map(&:name)).to eq(%w[accept4 recvfrom sendto close] * requests), calls.join("\n")
        calls.each_slice(4) do |accept, receive, write, close|
          expect(accept.arguments).to match(/SOCK_CLOEXEC\|SOCK_NONBLOCK/)
          expect([receive, write, close].map { |call| call.arguments[/\A\d+/] }).to all(eq(accept.result[/\A\d+/]))
        end
        # A request that is traced may well be a long one, after which there is a look at what else has come.
        looks.count { |call| call.name == "epoll_wait" } <= requests / 4
      end
      expect(few_looks).to be(true)
    end
  end

  # How often the worker makes each call for a kept connection; nil where the helper has handed the connection over, so that its descriptor has
  # another number.
  define_method(:counts_of_kept) do |worker, others|
    eventually(5) do
      kept = worker.calls.find { |call| call.arguments.include?("HTTP/1.1 200") }&.arguments.to_s[/\A\d+/]
      of_kept = ->(thread) { thread.calls.select { |call| call.arguments.match?(/\A#{kept}(,|\z)/) } }
      served = of_kept.(worker).drop_while { |call| !%w[recvfrom sendto].include?(call.name) }
      closes = [worker, *others].flat_map(&of_kept).select { |call| call.name == "close" }
      next unless kept && closes.any? { |call| call.time > served.first.time }

      found = served.take_while { |call| call.name != "close" }.map(&:name).tally
      # Where the helper has closed, the worker's last call may not be written yet.
      found if found["sendto"].to_i >= requests
    end
  rescue Eventually::TimedOut
    nil
  end

  it "are recvfrom and sendto on a kept connection, and no other thread sends (C4)", linux: "timerfd, eventfd and level-triggered events" do
    counts = (1..tries).lazy.filter_map do
      serve(app, wrapper: HttpStrace.wrapper(@traces))
      # One after the other, so that the worker waits for each of them.
      KeptPeer.open(server) { |peer| requests.times { peer.get("/") } }
      # By number the helper may come first: numbers begin again when they are used up.
      worker, *others = Dir.children("/proc/#{@worker}/task").map(&:to_i).partition { |thread| thread == @worker }.flatten.map { |thread| HttpStrace.new(@traces, thread) }
      found = counts_of_kept(worker, others)
      # The helper may accept and read when a traced request has taken long.
      expect([others.size, others.flat_map(&:calls).map(&:name) & %w[writev sendto]]).to match([be >= 1, []])
      found
    end.first
    # How long the client has been in the backlog, at its first request.
    expect(counts.delete("getsockopt").to_i).to be <= 1
    expect(counts.keys).to contain_exactly("recvfrom", "sendto")
    expect(counts["sendto"]).to eq(requests)
  end
end
