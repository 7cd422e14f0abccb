# frozen_string_literal: true

require_relative "connection"
require_relative "processes"

module Soak
  # The server under test: started, signalled and looked at from outside. Masters come and go; it is always the one in the
  # pid file.
  class Server
    # Seconds for a start, a restart or an end, under load and with requests that hang until their time is over.
    PATIENCE = 60

    # It does not do what it must.
    class Failed < StandardError; end

    attr_reader :site

    def initialize(site, record)
      @site = site
      @record = record
      @statuses = {}
      @reading = true
    end

    # Returns when all workers serve.
    def start
      reader, writer = IO.pipe
      @started = spawn(site.environment, *site.command, chdir: site.dir, in: File::NULL, out: writer, err: writer, pgroup: true, rlimit_core: 0)
      writer.close
      @reader = Thread.new { read_log(reader) }
      await("it does not start") { ended?(@started) ? raise(Failed, "it ended at once:\n#{log[-2000..] || log}") : complete? }
    end

    def master
      pid = File.read(site.path("server.pid")).to_i
      pid if pid.positive? && Processes.alive?(pid)
    rescue Errno::ENOENT
      nil
    end

    # Pids of the workers, and of nothing else that the master has forked.
    def workers = titled("fastrack worker")

    # @return [Array<Integer>] pids of the processes that have loaded the app and fork workers; one, as a rule
    def first_generations = titled("fastrack generation 0")

    # @return [Array<Integer>] pids of workers that have become such processes; one, or none, as a rule
    def molds = titled("fastrack mold")

    def signal(name, to: master)
      Process.kill(name, to) if to
    rescue Errno::ESRCH
      nil
    end

    # Waits until there is one master with as many workers as there should be, and nothing else that it, or one before it, has
    # started.
    def await_order(what)
      await("after #{what} it is not complete") { complete? }
      await("after #{what} processes are left over") { strays.empty? }
      true
    rescue Failed => e
      @record.finding(e.message)
      false
    end

    # Whether all workers are there, and one answers.
    def complete?
      workers.size == site.workers && answers?
    end

    # Whether a worker answers a request as it should.
    def answers? = ask("/") == 200

    # @return [Integer, nil] the status; nil without a response
    def ask(path)
      connection = Connection.new(site.port)
      connection.write("GET #{path} HTTP/1.0\r\n\r\n")
      connection.read.status
    rescue Connection::Lost
      nil
    ensure
      connection&.close
    end

    # Descendants of this process that are neither the master nor a worker, generation 0 or the mold.
    def strays
      Processes.descendants(Process.pid) - [master, *workers, *first_generations.first(1), *molds.first(1)]
    end

    # @param name [Symbol] a signal after which the server must end, with everything that it has started
    # @return [Process::Status, nil] the master's; nil when it did not end
    def end_by(name)
      pid = master
      signal(name, to: pid)
      await("after #{name} it does not end") { ended?(pid) && (strays - [pid]).empty? }
      @statuses[pid]
    rescue Failed => e
      @record.finding(e.message)
      kill
      nil
    end

    # Ends whatever is there.
    def kill
      Processes.descendants(Process.pid).each { |pid| signal(:KILL, to: pid) }
      await("it cannot be killed") { Processes.descendants(Process.pid).all? { |pid| ended?(pid) } }
    end

    # Collects the status of what has ended, and was started, or left behind, by the server.
    def reap
      Processes.zombies(Process.pid).each { |pid| ended?(pid) }
    end

    # Lets the log's pipe get stuck while the block runs.
    def without_log_reader
      @reading = false
      yield
    ensure
      @reading = true
    end

    def log
      Dir[site.path("*.log*")].grep_v(/app\.log/).map { |file| File.binread(file).scrub }.join
    end

    # @param seconds [Numeric] that it may take until the block gives a true value
    def await(what, seconds = PATIENCE)
      Bench.await(seconds, step: 0.1) { yield } or
        raise Failed, "#{what}, not within #{seconds} s: master #{master.inspect}, workers #{workers}, others #{describe(strays)}"
    end

    private

    def titled(start)
      pid = master
      pid ? Processes.children(pid).select { |child| Processes.title(child).start_with?(start) } : []
    end

    def describe(pids)
      pids.map { |pid| "#{pid} #{Processes.title(pid)[0, 100].inspect}" }
    end

    # The server's processes become children of this one when their parents end. The kernel is asked first: another process
    # may have had the same pid.
    def ended?(pid)
      _, status = Process.wait2(pid, Process::WNOHANG)
      @statuses[pid] = status if status
      !status.nil?
    rescue Errno::ECHILD
      !Processes.alive?(pid)
    end

    def read_log(reader)
      File.open(site.path("server.log"), "ab") do |file|
        loop do
          sleep 0.05 until @reading
          file.write(reader.readpartial(65_536))
          file.flush
        end
      end
    rescue EOFError
      reader.close
    end
  end
end
