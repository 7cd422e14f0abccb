# frozen_string_literal: true

require_relative "connection"

module Soak
  # Acts on a server, one after the other at random. Each act names the failures of clients that it excuses; all others are
  # the server's fault. A hanging request, a crash and the like are done by clients, who know what they must get.
  class Acts
    # Failures of clients whose worker is gone.
    BROKEN = %i[unanswered cut].freeze

    # How often each comes, in proportion; and the kinds of failures that it excuses. Where the last worker that serves has to end, an
    # upload that has begun gets 502: nobody takes the rest.
    QUIET = {
      hup: [4], broken_config: [1], fewer_and_more: [2], reopen_logs: [2], term_worker: [3], kill_worker: [4, *BROKEN],
      kill_all_workers: [1, *BROKEN], stop_worker_briefly: [2], stop_worker: [2, *BROKEN], hanging_boot: [2, :"502"], failing_boot: [2, :"502"],
      hanging_end: [2], no_disk: [2, :"503"], stuck_log: [2], crowd: [2], signals: [5],
      # The mold serves nobody, so that its end excuses nothing; nor does a refork.
      refork: [3], kill_mold: [2], stop_mold: [1], kill_trial: [2, *BROKEN]
    }.freeze

    # Acts after which there is another master, on seeds that let it be. Idle connections end without a word then, and a client that comes
    # between two masters is refused. Workers of a killed master finish what they have begun, and end.
    NEW_MASTERS = {
      deploy: [4], failing_deploy: [1], restart: [1, :refused, :unanswered, :"502"], kill_master: [1, :refused, :unanswered, :"502"]
    }.freeze
    ALL = { **QUIET, **NEW_MASTERS }.freeze

    # The signals of which any may come at any time and lose no request.
    HARMLESS = %i[HUP HUP USR1 TTIN TTOU WINCH URG URG].freeze

    # Seconds for the mold: what the candidate has begun may last as long as a request may. There may be none, as the log says.
    TIME_FOR_MOLD = 10
    # Seconds for the first worker of it.
    TIME_FOR_TRIAL = 5

    # Connections that are made at once, and seconds for which they stay.
    CROWD = 150
    CROWD_STAYS = 1.5

    def self.names = ALL.keys.map(&:to_s)

    # @param names [Array<String>, nil] what to do, instead of all
    def initialize(server, record, names = nil)
      @server = server
      @site = server.site
      @record = record
      @random = @site.random(1)
      all = @site.new_masters? ? ALL : QUIET
      all = ALL.slice(*names.map(&:to_sym)) if names
      @choice = all.flat_map { |name, (weight)| [name] * weight }
    end

    def go_on_until(deadline)
      pause(1.0)
      while Bench.now < deadline
        name = @choice.sample(random: @random)
        do_one(name)
        # Some come while what the last one has begun is not over.
        @server.await_order(name) unless @random.rand < 0.25
        pause(@random.rand * 3)
      end
    end

    private

    def do_one(name)
      @record.act(name.to_s, *ALL.fetch(name).drop(1)) { __send__(name) }
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
      @server.signal(:HUP)
      await_others(before)
    end

    def broken_config
      broken = ["raise 'broken'", "exit", "no_such_word", "def deep = deep\ndeep", "listen '~nobody-here/app.sock'", "throw :out"]
      @site.write_config(more: broken.sample(random: @random))
      @server.signal(:HUP)
      pause(1.0)
    ensure
      @site.write_config
    end

    def fewer_and_more
      @site.write_config(workers: [@site.workers - 1, @site.workers + 2].sample(random: @random))
      @server.signal(:HUP)
      pause(2.0)
    ensure
      @site.write_config
      @server.signal(:HUP)
    end

    # As logrotate does it.
    def reopen_logs
      files = [@site.path("app.log"), *(@site.log if @site.log_file?)]
      files.each { |file| File.rename(file, "#{file}.1") if File.exist?(file) }
      @server.signal(:USR1)
      @server.await("an old log file stays in use") { [@server.master, *@server.workers].compact.none? { |pid| old_log?(pid) } }
    end

    def old_log?(pid)
      Processes.descriptors(pid).keys.any? { |file| file.end_with?(".log.1") }
    end

    def term_worker = signal_worker(%i[TERM QUIT].sample(random: @random))

    def signals
      @random.rand(4..12).times do
        @server.signal(HARMLESS.sample(random: @random))
        pause(@random.rand * 0.3)
      end
      signal_worker(:TERM)
    ensure
      pause(0.5)
      @server.signal(:HUP)
    end

    # --- ends of workers

    def kill_worker = end_worker(%i[KILL ABRT].sample(random: @random))

    # WorkerTimeout is for this.
    def stop_worker = end_worker(:STOP)

    def end_worker(name)
      pid = any_worker or return
      @server.signal(name, to: pid)
      await_end(pid)
    end

    def kill_all_workers
      @server.workers.each { |pid| @server.signal(:KILL, to: pid) && await_end(pid) }
    end

    def await_end(pid)
      @server.await("worker #{pid} does not end") { !Processes.alive?(pid) }
    end

    def stop_worker_briefly
      pid = any_worker or return
      @server.signal(:STOP, to: pid)
      pause(@random.rand * 0.5)
    ensure
      @server.signal(:CONT, to: pid) if pid
    end

    # --- hooks

    def hanging_boot
      @site.flag("hang_after_fork") do
        @server.signal(:HUP)
        signal_worker(:TERM)
        pause(Site::BOOT_TIMEOUT + 3)
      end
    end

    def failing_boot
      @site.flag("fail_after_fork") do
        @server.signal(:HUP)
        pause(2.0)
      end
    end

    def hanging_end
      before = @server.workers
      @site.flag(%w[hang_before_worker_shutdown hang_at_exit].sample(random: @random)) do
        @server.signal(:HUP)
        await_others(before)
      end
    end

    # --- what runs out

    def no_disk
      @site.without_disk { pause(2.0) }
    end

    # With more to log than a pipe takes (pipe(7)), while workers come and go.
    def stuck_log
      before = @server.workers
      @server.without_log_reader do
        12.times { @server.ask("/raise") or @record.finding("/raise gets no response") }
        @server.signal(:HUP)
        await_others(before)
        signal_worker(:TERM)
        pause(1.0)
      end
    end

    def crowd
      all = Array.new(CROWD) { Connection.new(@site.port) }
      all.sample(CROWD / 2, random: @random).each { |one| one.write("GET /work HTTP/1.1\r\nHost: soak\r\n\r\n") }
      pause(CROWD_STAYS)
      all.each { |one| @random.rand < 0.5 ? one.abort : one.close }
    rescue Connection::Lost => e
      @record.finding("no room for a crowd: #{e.kind}")
    end

    # --- reforks

    def refork
      @server.signal(:URG)
      pause(@random.rand * 5)
    end

    def kill_mold
      mold = reforked or return
      pause(@random.rand * 3)
      @server.signal(:KILL, to: mold)
    end

    # The master notices at the next fork.
    def stop_mold
      mold = reforked or return
      @server.signal(:STOP, to: mold)
      signal_worker(:TERM)
      @server.await("the stopped mold #{mold} stays") { !Processes.alive?(mold) }
    end

    def kill_trial
      reforked or return
      before = @server.workers
      trial = Bench.await(TIME_FOR_TRIAL, step: 0.02) { (@server.workers - before).first } or return
      pause(@random.rand * 0.5)
      @server.signal(:KILL, to: trial)
      await_end(trial)
    end

    # A worker that the mold has just forked has its title for a moment, too.
    #
    # @return [Integer, nil] pid of a new mold, which was a worker
    def reforked
      before = @server.workers
      @server.signal(:URG)
      Bench.await(TIME_FOR_MOLD, step: 0.02) { (@server.molds & before).first }
    end

    # --- other masters

    def deploy
      before = @server.master
      @server.signal(:USR2)
      signal_worker(:TERM) if @random.rand < 0.3
      @server.signal(:HUP) if @random.rand < 0.2
      @server.await("the new master does not take over") { (now = @server.master) && now != before && !Processes.alive?(before) }
    end

    def failing_deploy
      before = @server.master
      name = %w[fail_load fail_after_fork].sample(random: @random)
      @site.flag(name) do
        @server.signal(:USR2)
        pause(0.5)
        @server.await("the old master does not carry on") { @server.master == before && (@server.strays & Processes.children(before)).empty? }
      end
    end

    def restart
      status = @server.end_by(:TERM)
      @record.finding("TERM ends it with #{status.inspect}") unless status&.exitstatus&.zero?
      @server.start
    end

    def kill_master
      @server.end_by(:KILL)
      @server.start
    end
  end
end
