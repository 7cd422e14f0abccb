# frozen_string_literal: true

require "open3"

# What the specs about `fastrack refork` share.
module ReforkHelpers
  # /keep has the worker remember something, and /grow 4 MB of its own; /until-stopped takes until the worker is told to stop; others answer with the worker's pid, its parent's, and what it remembers.
  APP = <<~'RUBY'
    $kept, $stopped, $grown = [], false, {}
    run lambda { |env|
      case env["PATH_INFO"]
      when "/keep" then $kept << Process.pid
      when "/grow"
        $grown[Process.pid] ||= "x" * (4 << 20)
        sleep 0.05
      when "/hijack" then env["rack.hijack"].call.tap { |socket| socket.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") }.close
      when "/mark" then GC.start
      when "/until-stopped"
        stop = trap("QUIT") { ($stopped = true) && stop.call }
        sleep 0.01 until $stopped
        $socket = env["rack.hijack"].call if env["QUERY_STRING"] == "hijack"
      when "/abort" then Process.kill(:ABRT, Process.pid) && sleep
      when "/forbid" then Fastrack.forbid_refork!
      when "/threads"
        Thread.new { sleep }.name = "beat"
        Thread.new { sleep }.tap { |thread| thread.name = "reaper" }.thread_variable_set(:fork_safe, true)
      when "/thread"
        require "fiddle"
        # A thread of which Ruby knows nothing: it sleeps.
        pthread = Fiddle::Handle::DEFAULT
        create = Fiddle::Function.new(pthread["pthread_create"], [Fiddle::TYPE_VOIDP] * 4, Fiddle::TYPE_INT)
        create.call(Fiddle::Pointer.malloc(16, Fiddle::RUBY_FREE), nil, pthread["sleep"], 1_000)
      end
      [200, {}, ["#{Process.pid} #{Process.ppid} #{$kept.first}"]]
    }
  RUBY

  # Notes which process runs which hook for which worker.
  CONFIG = <<~'RUBY'
    $note = ->(what) { File.write("notes", "#{what}\n", mode: "a") }
    before_refork { |_, worker| $note.call("refork #{Process.pid} #{worker.nr}") }
    before_fork { |_, worker| $note.call("before #{Process.pid} #{worker.nr}") }
    after_fork { |_, worker| $note.call("after #{Process.pid} #{worker.nr} #{Fastrack.stats[:totals][:requests]}") }
    before_worker_shutdown { $note.call("shutdown #{Process.pid}") }
    # A mold that is killed before the master forks the next worker, and after it has looked for processes that have ended.
    after_worker_exit do
      mold = File.read("kill").to_i.tap { |pid| Process.kill(:KILL, pid) && File.delete("kill") } if File.exist?("kill")
      sleep 0.01 until mold.nil? || File.read("/proc/#{mold}/stat").include?(") Z ")
    end
  RUBY

  def serving(fastrack: false, config: CONFIG, app: APP, **options)
    Server.ready(ru: app, config: config, fastrack: fastrack, options: { MaxWorkers: 3, MaxRequestPerChild: 0, ControlPath: "control", **options })
  end

  # Asks until one worker has served more than any other. A kept connection goes to another worker when its own has no processor.
  #
  # @return [Integer] its pid
  def warmed(server, path = "/keep") = KeptPeer.new(server).then { |peer| kept_by_one(peer, path).tap { peer.close } }

  # The same, on a connection that goes on.
  def kept_by_one(peer, path = "/keep")
    pids = Array.new(20) { peer.get(path).body.to_i }
    pids << peer.get(path).body.to_i until pids.count(pids.last) > pids.size * 2 / 3
    pids.last
  end

  # How many requests the mold had answered as a worker, as the log says.
  def requests_of(server, mold) = server.log[/ \(pid #{mold}, (\d+) requests\): /, 1].to_i

  # Gives each worker memory of its own, which the mold's first worker does not have: so the mold stands its trial.
  def grow(server)
    grown = []
    eventually(40) do
      grown |= Array.new(6) { Thread.new { server.get("/grow").body.to_i } }.map(&:value)
      (server.workers - grown).empty?
    end
  end

  # The command, and requests for the mold's first worker to prove itself by.
  #
  # @return [Array(String, Integer)] what it says, and its status
  def refork(server)
    command = [Server::CLEAN_ENVIRONMENT, RbConfig.ruby, "-w", Server::COMMAND, "refork", "--control", "control"]
    asked = Thread.new { Open3.capture2e(*command, chdir: server.dir, stdin_data: "") }
    eventually(60) { !asked.alive? || (roles(server).key?("mold") && Array.new(5) { server.get } && nil) }
    output, status = asked.value
    [output, status.exitstatus]
  end

  # @return [Hash{String => Array<Integer>}] pids of the server's children, by what they are
  def roles(server, master = server.master)
    ProcessTable.children(master).group_by { |pid| ProcessTable.title(pid)[/\Afastrack (\w+)/, 1] }
  rescue Errno::ENOENT, Errno::ESRCH
    # It has just ended.
    {}
  end

  # Waits until all workers are others than these, beside so many molds.
  def settled(server, before, molds: 1, workers: 3)
    eventually(40) do
      found = roles(server)
      found.keys.compact.size == found.size && found.fetch("mold", []).size == molds && found.fetch("worker", []).size == workers &&
        (found["worker"] & before).empty? && found
    end
  end

  # @return [Array<String>] what so many answers say that a worker remembers
  def remembered(server) = Array.new(30) { server.get.body.split }.to_h { |pid, _, kept| [pid, kept] }.values

  def reforked(**options)
    server = serving(**options)
    mold = warmed(server)
    before = server.workers
    expect(refork(server)).to match([/\AURG sent to \d+$/, 0])
    settled(server, before)
    [server, mold]
  end
end
