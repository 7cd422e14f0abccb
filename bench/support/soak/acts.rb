# frozen_string_literal: true

require_relative "connection"
require_relative "reforks"

module Soak
  # Acts on a server, one after the other at random. Each act names the failures of clients that it excuses; all others are
  # the server's fault. A hanging request, a crash and the like are done by clients, who know what they must get.
  class Acts
    include Reforks

    # How often each comes, in proportion.
    QUIET = {
      hup: 4, hup_twice: 1, broken_config: 1, fewer_and_more: 2, reopen_logs: 2, ttin_ttou: 2, winch: 1, term_worker: 2, quit_worker: 1,
      abort_worker: 2, kill_worker: 3, kill_all_workers: 1, stop_worker_briefly: 2, stop_worker: 2, hanging_boot: 2, failing_boot: 2,
      hanging_end: 2, hanging_exit: 1, full_disk: 2, stuck_log: 2, crowd: 2, signals: 2, **Reforks::WEIGHTS
    }.freeze

    # Acts after which there is another master, on seeds that let it be.
    NEW_MASTERS = { deploy: 4, failing_deploy: 1, restart: 1, quick_restart: 1, kill_master: 1 }.freeze

    # The signals of which any may come at any time and lose no request.
    HARMLESS = %i[HUP HUP USR1 TTIN TTOU].freeze

    # Connections that are made at once, and seconds for which they stay.
    CROWD = 150
    CROWD_STAYS = 1.5

    BROKEN = %i[unanswered cut].freeze

    def self.names = [*QUIET, *NEW_MASTERS].map { |name, _| name.to_s }

    # @param server [Server]
    # @param record [Record]
    # @param names [Array<String>, nil] what to do, instead of all
    def initialize(server, record, names = nil)
      @server = server
      @site = server.site
      @record = record
      @random = @site.random(1)
      all = @site.new_masters? ? QUIET.merge(NEW_MASTERS) : QUIET
      all = [*QUIET, *NEW_MASTERS].to_h.slice(*names.map(&:to_sym)) if names
      @choice = all.flat_map { |name, weight| [name] * weight }
    end

    def go_on_until(deadline)
      pause(1.0)
      while Soak.now < deadline
        name = @choice.sample(random: @random)
        do_one(name)
        # Some come while what the last one has begun is not over.
        @server.await_order(name) unless @random.rand < 0.25
        pause(@random.rand * 3)
      end
    end

    private

    def do_one(name)
      __send__(name)
    rescue Server::Failed => e
      @record.finding("#{name}: #{e.message}")
    end

    def pause(seconds)
      sleep(seconds)
    end

    def any_worker
      @server.workers.sample(random: @random)
    end

    def signal_worker(name)
      any_worker&.then { |pid| @server.signal(name, to: pid) }
    end

    # All workers of now are to go.
    def await_others(before)
      @server.await("old workers stay") { (@server.workers & before).empty? && @server.workers.any? }
    end

    # --- signals that lose nothing

    def hup
      before = @server.workers
      @record.act("hup") do
        @server.signal(:HUP)
        await_others(before)
      end
    end

    def hup_twice
      @record.act("hup_twice") do
        @server.signal(:HUP)
        pause(@random.rand)
        @server.signal(:HUP)
      end
    end

    def broken_config
      @record.act("broken_config") do
        broken = ["raise 'broken'", "exit", "no_such_word", "def deep = deep\ndeep", "listen '~nobody-here/app.sock'", "throw :out"]
        @site.write_config(more: broken.sample(random: @random))
        @server.signal(:HUP)
        pause(1.0)
      end
    ensure
      @site.write_config
    end

    def fewer_and_more
      @record.act("fewer_and_more") do
        @site.write_config(workers: [@site.workers - 1, @site.workers + 2].sample(random: @random))
        @server.signal(:HUP)
        pause(2.0)
      end
    ensure
      @site.write_config
      @server.signal(:HUP)
    end

    # As logrotate does it.
    def reopen_logs
      @record.act("reopen_logs") do
        files = [@site.path("app.log"), *(@site.log if @site.log_file?)]
        files.each { |file| File.rename(file, "#{file}.1") if File.exist?(file) }
        @server.signal(:USR1)
        @server.await("an old log file stays in use") { [@server.master, *@server.workers].compact.none? { |pid| old_log?(pid) } }
        FileUtils.mv("#{@site.log}.1", @site.path("rotated.log")) if File.exist?("#{@site.log}.1")
      end
    end

    def old_log?(pid)
      Processes.descriptors(pid).keys.any? { |file| file.end_with?(".log.1") }
    end

    def ttin_ttou
      @record.act("ttin_ttou") do
        names = %i[TTIN TTOU].cycle.first(2 * @random.rand(1..3))
        names.each { |name| @server.signal(name) || pause(@random.rand * 0.5) }
      end
    ensure
      # One of two that come at once may be lost.
      pause(0.5)
      @server.signal(:HUP)
    end

    def winch
      @record.act("winch") do
        @server.signal(:WINCH)
        pause(1.5)
        @server.signal(:HUP)
      end
    end

    def term_worker = @record.act("term_worker") { signal_worker(:TERM) }
    def quit_worker = @record.act("quit_worker") { signal_worker(:QUIT) }

    def signals
      @record.act("signals") do
        @random.rand(4..12).times do
          @server.signal(HARMLESS.sample(random: @random))
          pause(@random.rand * 0.3)
        end
        signal_worker(:TERM)
      end
    ensure
      pause(0.5)
      @server.signal(:HUP)
    end

    # --- ends of workers

    def abort_worker
      pid = any_worker or return
      @record.act("abort_worker", *BROKEN) do
        @server.signal(:ABRT, to: pid)
        await_end(pid)
      end
    end

    def kill_worker
      pid = any_worker or return
      @record.act("kill_worker", *BROKEN) do
        @server.signal(:KILL, to: pid)
        await_end(pid)
      end
    end

    def kill_all_workers
      @record.act("kill_all_workers", *BROKEN) do
        @server.workers.each { |pid| @server.signal(:KILL, to: pid) && await_end(pid) }
      end
    end

    def await_end(pid)
      @server.await("worker #{pid} does not end") { !Processes.now.alive?(pid) }
    end

    def stop_worker_briefly
      pid = any_worker or return
      @record.act("stop_worker_briefly") do
        @server.signal(:STOP, to: pid)
        pause(@random.rand * 0.5)
      end
    ensure
      @server.signal(:CONT, to: pid) if pid
    end

    # WorkerTimeout is for this.
    def stop_worker
      pid = any_worker or return
      @record.act("stop_worker", *BROKEN) do
        @server.signal(:STOP, to: pid)
        await_end(pid)
      end
    end

    # --- hooks

    # Where the last worker that serves has to end, an upload that has begun gets 502: nobody takes the rest.
    def hanging_boot
      @record.act("hanging_boot", :"502") do
        @site.flag("hang_after_fork") do
          @server.signal(:HUP)
          signal_worker(:TERM)
          pause(Site::BOOT_TIMEOUT + 3)
        end
      end
    end

    def failing_boot
      @record.act("failing_boot", :"502") do
        @site.flag("fail_after_fork") do
          @server.signal(:HUP)
          pause(2.0)
        end
      end
    end

    def hanging_end
      @record.act("hanging_end") { hang("hang_before_worker_shutdown") }
    end

    def hanging_exit
      @record.act("hanging_exit") { hang("hang_at_exit") }
    end

    def hang(name)
      before = @server.workers
      @site.flag(name) do
        @server.signal(:HUP)
        await_others(before)
      end
    end

    # --- what runs out

    def full_disk
      @record.act("full_disk", :"503") do
        @site.without_room { pause(2.0) }
      end
    end

    # With more to log than a pipe takes (pipe(7)), while workers come and go.
    def stuck_log
      before = @server.workers
      @record.act("stuck_log") do
        @server.without_log_reader do
          12.times { ask("/raise") }
          @server.signal(:HUP)
          await_others(before)
          signal_worker(:TERM)
          pause(1.0)
        end
      end
    end

    def ask(path)
      connection = Connection.new(@site.port)
      connection.write("GET #{path} HTTP/1.0\r\n\r\n")
      connection.read
    rescue Connection::Lost => e
      @record.finding("#{path} gets no response: #{e.kind}")
    ensure
      connection&.close
    end

    def crowd
      @record.act("crowd") do
        all = Array.new(CROWD) { Connection.new(@site.port) }
        all.sample(CROWD / 2, random: @random).each { |one| one.write("GET /work HTTP/1.1\r\nHost: soak\r\n\r\n") }
        pause(CROWD_STAYS)
        all.each { |one| @random.rand < 0.5 ? one.abort : one.close }
      rescue Connection::Lost => e
        @record.finding("no room for a crowd: #{e.kind}")
      end
    end

    # --- other masters

    def deploy
      before = @server.master
      @record.act("deploy") do
        @server.signal(:USR2)
        signal_worker(:TERM) if @random.rand < 0.3
        @server.signal(:HUP) if @random.rand < 0.2
        @server.await("the new master does not take over") { (now = @server.master) && now != before && !Processes.now.alive?(before) }
      end
    end

    def failing_deploy
      before = @server.master
      @record.act("failing_deploy") do
        name = %w[fail_load fail_after_fork].sample(random: @random)
        @site.flag(name) do
          @server.signal(:USR2)
          pause(0.5)
          @server.await("the old master does not carry on") { @server.master == before && (Processes.now.children(before) - @server.workers - @server.molds).empty? }
        end
      end
    end

    # Idle connections end without a word, and a client that comes between two masters is refused. Where a request
    # hangs in the last worker an upload that has begun gets 502, as above.
    def restart
      @record.act("restart", :refused, :unanswered, :"502") do
        status = @server.end_by(:TERM)
        @record.finding("TERM ends it with #{status.inspect}") unless status&.exitstatus&.zero?
        @server.start
      end
    end

    def quick_restart
      @record.act("quick_restart", :refused, *BROKEN) do
        # The first one would wait for requests.
        @server.end_by(:INT, again: true)
        @server.start
      end
    end

    # Its workers finish what they have begun, and end. Where a request hangs in one of them an upload that has begun gets 502, as
    # above.
    def kill_master
      @record.act("kill_master", :refused, :unanswered, :"502") do
        @server.end_by(:KILL)
        @server.start
      end
    end
  end
end
