# frozen_string_literal: true

require_relative "kept_peer"

# A server whose workers have several requests in the app at once.
module ThreadsApp
  RU = <<~'RUBY'
    require "fiddle"
    HERE = File.dirname(File.expand_path(__FILE__))
    # sigwait(3) for no signal at all: native code that never returns and keeps Ruby's lock.
    SIGWAIT = Fiddle::Function.new(Fiddle.dlopen(nil)["sigwait"], [Fiddle::TYPE_VOIDP] * 2, Fiddle::TYPE_INT, need_gvl: true)
    LOCK = Mutex.new
    INSIDE = Hash.new(0)
    PEAKS = Hash.new(0)

    # Counts the requests that are in the block at once.
    def inside(name)
      LOCK.synchronize { PEAKS[name] = [PEAKS[name], INSIDE[name] += 1].max }
      yield
    ensure
      LOCK.synchronize { INSIDE[name] -= 1 }
    end

    def note(name, text = Process.pid)
      File.write(File.join(HERE, name), "#{text}\n", mode: "a")
    end

    def wait_for(name, step = 0.005)
      note("waiting")
      sleep step until File.exist?(File.join(HERE, name))
    end

    def burn(seconds)
      start = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
      nil until Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) - start > seconds
    end

    # Not before so many have come together.
    def meet(count)
      met = LOCK.synchronize { INSIDE[:met] += 1 }
      sleep 0.005 until LOCK.synchronize { INSIDE[:met] } >= count
      met
    end

    run lambda { |env|
      query = env["QUERY_STRING"]
      body = case env["PATH_INFO"]
             when "/meet" then meet(query.to_i)
             when "/wait" then inside(:wait) { wait_for(query) } || "waited"
             when "/poll" then wait_for(query, 0.001)
             when "/peak" then PEAKS[query.to_sym]
             when "/burn" then inside(:burn) { burn(query.to_f) }
             when "/page"
               INSIDE[:beside] += 1 if INSIDE[:page].positive?
               inside(:page) { 3.times { burn(0.008); sleep(query.to_f) } }
               INSIDE[:beside]
             when "/env" then [env["rack.multithread"], Thread.current.name].join(" ")
             when "/local" then (Thread.current[:seen] ||= Thread.current.object_id) == Thread.current.object_id
             when "/sleep" then [env["fastrack.timeout"].call(query.to_f), sleep]
             when "/lock" then SIGWAIT.call("\0" * 128, "\0" * 8)
             when "/states" then Fastrack.stats[:workers].map { |worker| worker[:state] }.sort.join(" ")
             when "/hints" then [env["rack.early_hints"].call("link" => "</#{query}>; rel=preload"), wait_for("go"), query].last
             when "/gone"
               note("waiting")
               sleep 0.005 until env["fastrack.client_gone"].call || File.exist?(File.join(HERE, query))
               note("gone", env["fastrack.client_gone"].call)
             when "/beside" then Thread.new { env["fastrack.client_gone"].call rescue $!.class }.value
             when "/hijack"
               socket = env["rack.hijack"].call
               socket.write("HTTP/1.1 200 OK\r\nContent-Length: #{query.size}\r\nConnection: close\r\n\r\n#{query}")
               socket.close
             when "/stream" then Enumerator.new { |parts| query.to_i.times { |i| parts << "#{i}," ; sleep 0.01 } }
             when "/read" then env["rack.input"].read
             when "/after" then env["rack.after_reply"] << -> { note("after", query) } and ""
             when "/kill" then Thread.current.kill
             when "/raise" then Thread.new(Thread.current) { |other| other.raise(IOError, "from outside") }.join && sleep(60)
             when "/exit" then meet(2) && exit(3)
             when "/request"
               Thread.current[:request] = query
               inside(:all) { sleep(rand * 0.01); burn(rand * 0.001) }
               Thread.current[:request] == query ? query : "mixed up"
             else "ok"
             end
      [200, { "content-type" => "text/plain" }, body.respond_to?(:each) ? body : [body.to_s]]
    }
  RUBY

  attr_reader :server

  # @return [Array<Integer>] pids of the workers
  def serve(threads: 5, workers: 1, ru: RU, options: {}, **keywords)
    @server = Server.start(ru: ru, options: { MaxWorkers: workers, MaxThreads: threads, **options }, **keywords)
    server.await_workers(workers)
  end

  def request(path) = Thread.new { server.get(path) }

  # Requests that wait in the app until the file `go` is there, each begun when the one before is in the app.
  def waiting(count, path = "/wait?go")
    Array.new(count) do
      before = server.lines_of("waiting").size
      request(path).tap { eventually { server.lines_of("waiting").size > before } }
    end
  end

  def go(name = "go") = server.write(name, "")
  def statuses(requests) = requests.map { |request| request.value.status }
end
