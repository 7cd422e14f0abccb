# frozen_string_literal: true

# Files of Puma's users, as they are.
RSpec.describe "A puma.rb", once: "the words are the same in every Ruby" do
  include CommandFolder

  it "serves with fastrack -C, whatever its name" do
    write("server.conf", "port 0, '127.0.0.1'\nworkers 2\nrackup 'web.ru'\ntag 'shop'")
    write("web.ru", "run ->(_env) { [200, {}, ['web']] }")
    server = ready("-C", "server.conf")
    expect(server.get.body).to eq("web")
    titles = [server.master, *server.await_workers(2)].map { |pid| File.read("/proc/#{pid}/cmdline").delete("\0").strip }
    expect(titles).to contain_exactly("fastrack master [shop]", "fastrack worker[0] [shop]", "fastrack worker[1] [shop]")
  end

  it "mounts the app where SCRIPT_NAME says, as Puma does, and another file does not" do
    write("config.ru", "run ->(env) { [200, {}, [env.values_at('SCRIPT_NAME', 'PATH_INFO').join(' ')]] }")
    write("puma.rb", "port 0, '127.0.0.1'")
    write("other.rb", "listen '127.0.0.1:0'\nmax_workers 1")
    expect(%w[puma.rb other.rb].map { |file| ready("-c", file, env: { "SCRIPT_NAME" => "/shop" }).get("/shop/cart").body })
      .to eq(["/shop /shop/cart", " /shop/cart"])
  end

  it "has its hooks called in the process and in the order that Puma has" do
    write("config/puma.rb", <<~RUBY)
      port 0, "127.0.0.1"
      workers 2
      note = ->(line) { File.write("notes", "\#{line} \#{File.read("/proc/self/cmdline")[/generation|worker/]}\\n", mode: "a") }
      before_fork { note.call "before_fork" }
      on_worker_fork { |index| note.call "on_worker_fork \#{index}" }
      after_worker_fork { |index| note.call "after_worker_fork \#{index}" }
      on_worker_boot { raise "not the end" }
      before_worker_boot(:mine) { |index, data| data[:booted] = index }
      before_thread_start { note.call "before_thread_start" }
      on_booted { note.call "on_booted" }
      out_of_band { note.call "out_of_band" }
      on_worker_shutdown("mine") { |index, data| note.call "on_worker_shutdown \#{index} \#{data[:booted]}" }
      after_worker_shutdown { |worker| note.call "after_worker_shutdown \#{worker.index} \#{worker.process_status.exitstatus}" }
      on_stopped { note.call "on_stopped" }
    RUBY
    server = ready
    server.get
    eventually { lines("notes").include?("out_of_band worker") }
    expect(server.stop.exitstatus).to eq(0)
    notes = lines("notes")
    expect(notes.tally).to eq(
      "before_fork generation" => 1, "on_worker_fork 0 generation" => 1, "on_worker_fork 1 generation" => 1, "after_worker_fork 0 generation" => 1,
      "after_worker_fork 1 generation" => 1, "before_thread_start worker" => 2, "on_booted generation" => 1, "out_of_band worker" => 1,
      "on_worker_shutdown 0 0 worker" => 1, "on_worker_shutdown 1 1 worker" => 1, "after_worker_shutdown 0 0 generation" => 1,
      "after_worker_shutdown 1 0 generation" => 1, "on_stopped generation" => 1
    )
    expect([notes.first(2), notes.last]).to eq([["before_fork generation", "on_worker_fork 0 generation"], "on_stopped generation"])
    expect(server.log).to match(/^fastrack: before_worker_boot failed: .*not the end/)
  end

  it "puts around the app what Puma does: scheme, address, methods, a fiber per request and a log" do
    write("config.ru", <<~RUBY)
      run lambda { |env|
        seen = Thread.current[:seen]
        Thread.current[:seen] = "before"
        [200, {}, [[env["rack.url_scheme"], env["REMOTE_ADDR"], seen.inspect].join(" ")]]
      }
    RUBY
    write("config/puma.rb", <<~RUBY)
      bind "tcp://127.0.0.1:0"
      rack_url_scheme "https"
      set_remote_address header: "X-Real-IP"
      supported_http_methods Puma::Const::SUPPORTED_HTTP_METHODS + ["PROPFIND"]
      fiber_per_request
      log_requests
    RUBY
    server = serve
    expect(server.get("/", { "X-Real-IP" => "192.0.2.9, 10.0.0.1" }).body).to eq("https 192.0.2.9 nil")
    expect([server.get("/again").body, server.request("PROPFIND", "/").status]).to eq(["https 127.0.0.1 nil", 200])
    expect(server.request("MKCALENDAR", "/").status).to eq(501)
    eventually { server.log.include?('"GET /again HTTP/1.1" 200') }
    expect(server.log).to match(%r{^192\.0\.2\.9 .*"GET / HTTP/1\.1" 200})
  end

  it "has a file with its state for pumactl, also after USR2" do
    write("tmp/.keep", "")
    write("config/puma.rb", "port 0, '127.0.0.1'\nstate_path 'tmp/puma.state'\nstate_permission 0o640\npidfile 'tmp/puma.pid'")
    server = ready
    state = "---\npid: #{server.master}\nrunning_from: \"#{@dir}\"\n"
    expect([File.read(path("tmp/puma.state")), File.stat(path("tmp/puma.state")).mode & 0o777]).to eq([state, 0o640])
    server.signal(:USR2)
    server.wait
    expect(File.read(path("tmp/puma.state"))[/pid: (\d+)/, 1].to_i).to eq(server.master)
    expect(server.master).not_to eq(server.pid)
  end

  describe "with plugin :tmp_restart" do
    before do
      write("tmp/.keep", "")
      write("config.ru", "code = File.read('code')\nrun ->(_env) { [200, {}, [code]] }")
    end

    it "loads new code when tmp/restart.txt is touched, and the app is preloaded" do
      write("code", "old")
      write("config/puma.rb", "port 0, '127.0.0.1'\nplugin :tmp_restart")
      server = ready("-e", "production")
      expect(server.get.body).to eq("old")
      write("code", "new")
      FileUtils.touch(path("tmp/restart.txt"))
      eventually { server.get.body == "new" }
      # The old worker may still take a client when the new one serves.
      server.await_workers(1)
      expect([server.get.body, server.log]).to match(["new", /^fastrack: tmp\/restart\.txt was touched: restarting \(HUP\)$/])
    end

    it "replaces the workers, again and again, when each of them loads the app" do
      write("code", "old")
      FileUtils.touch(path("tmp/restart.txt"), mtime: Time.now - 10)
      write("config/puma.rb", "port 0, '127.0.0.1'\nplugin :tmp_restart\npreload_app! false")
      server = ready
      %w[old new newer].each_with_index do |code, count|
        write("code", code)
        FileUtils.touch(path("tmp/restart.txt"), mtime: Time.now + count) if count.positive?
        eventually { server.get.body == code }
      end
      expect(server.log.scan("tmp/restart.txt was touched: restarting (HUP)").size).to eq(2)
      expect(server.master).to eq(server.pid)
    end
  end

  # A plugin that does with Puma what Solid Queue's does: a process beside the master, which is watched from both sides.
  describe "with plugin :solid_queue" do
    before do
      write("lib/puma/plugin/solid_queue.rb", <<~RUBY)
        require "puma/plugin"

        Puma::Plugin.create do
          def start(launcher)
            @log = launcher.log_writer
            @log.log "mode \#{launcher.options[:solid_queue_mode].inspect} \#{Gem::Version.new(Puma::Const::VERSION) < Gem::Version.new("7")}"
            master = $$
            in_background { watch }
            launcher.events.on_booted do
              @pid = fork do
                trap(:INT) { File.write("stopped", "\#{JOBS} \#{Process.ppid == master}") && exit!(0) }
                File.write("queue.new", $$) && File.rename("queue.new", "queue")
                sleep
              end
            end
            launcher.events.on_stopped do
              @stopping = true
              Process.kill(:INT, @pid)
              Process.wait(@pid)
              @log.log "queue stopped"
            end
          end

          def watch
            sleep 0.05 until @pid
            sleep 0.05 until @stopping || Process.wait(@pid, Process::WNOHANG)
            return if @stopping

            @log.log "queue is gone"
            Process.kill(:INT, $$)
          rescue Errno::ECHILD
            nil
          end
        end
      RUBY
      write("config.ru", "JOBS = 'jobs of the app'\n#{Rackups::PID}")
      write("config/puma.rb", "port 0, '127.0.0.1'\nplugin :solid_queue if ENV['SOLID_QUEUE_IN_PUMA']\nsolid_queue_mode :fork")
    end

    def serve_with_queue
      server = ready(env: { "SOLID_QUEUE_IN_PUMA" => "true", "RUBYLIB" => path("lib") })
      eventually { lines("queue").any? }
      server
    end

    it "runs it beside the workers, with the app, until the server stops" do
      server = serve_with_queue
      expect([server.get.status, server.log]).to match([200, /^mode :fork true$/])
      expect([ProcessTable.alive?(lines("queue").first.to_i), server.stop.exitstatus]).to eq([true, 0])
      expect(lines("stopped")).to eq(["jobs of the app true"])
    end

    it "ends the server when Solid Queue has ended" do
      server = serve_with_queue
      Process.kill(:KILL, lines("queue").first.to_i)
      server.wait
      expect(server.log).to include("queue is gone")
    end
  end

  # What `rails new` writes, by version: the same calls, without the comments.
  rails = {
    "6.0 to 7.1" => <<~RUBY,
      most = ENV.fetch("RAILS_MAX_THREADS") { 5 }
      threads ENV.fetch("RAILS_MIN_THREADS") { most }, most
      if ENV["RAILS_ENV"] == "production"
        require "concurrent-ruby"
        count = Integer(ENV.fetch("WEB_CONCURRENCY") { Concurrent.physical_processor_count })
        workers count if count > 1
      end
      worker_timeout 3600 if ENV.fetch("RAILS_ENV", "development") == "development"
      port ENV.fetch("PORT") { 3000 }
      environment ENV.fetch("RAILS_ENV") { "development" }
      pidfile ENV.fetch("PIDFILE") { "tmp/pids/server.pid" }
      plugin :tmp_restart
    RUBY
    "7.2 to 8.1" => <<~RUBY
      count = ENV.fetch("RAILS_MAX_THREADS", 3)
      threads count, count
      port ENV.fetch("PORT", 3000)
      plugin :tmp_restart
      plugin :solid_queue if ENV["SOLID_QUEUE_IN_PUMA"]
      pidfile ENV["PIDFILE"] if ENV["PIDFILE"]
    RUBY
  }

  set = { "RAILS_MAX_THREADS" => "4", "WEB_CONCURRENCY" => "2", "PORT" => "0", "PIDFILE" => "tmp/pids/mine.pid", "RAILS_ENV" => "production",
          "SOLID_QUEUE_IN_PUMA" => "1" }

  # What may be said of such a file.
  threads = /\Afastrack: workers answer up to \d requests at once/.freeze

  rails.each do |version, text|
    describe "that Rails #{version} has written" do
      before do
        write("config/puma.rb", text)
        write("tmp/pids/.keep", "")
        write("config.ru", "run ->(_env) { [200, {}, [ENV['RACK_ENV']]] }")
        write("lib/concurrent-ruby.rb", "module Concurrent; def self.physical_processor_count = 2; end")
        write("lib/puma/plugin/solid_queue.rb", "require 'puma/plugin'\nPuma::Plugin.create { def start(launcher) = launcher.log_writer.log('queue') }")
      end

      it "runs unchanged with no variable set" do
        output, = fastrack("check", env: set.transform_values { nil })
        # rackup's own variable, too: what the file does not say is development.
        expect(output.lines.grep_v(threads).grep_v(/open files/))
          .to eq(["loading from config_file:config/puma.rb\n", "configuration: 1 worker at 0.0.0.0:3000\n", "app: loaded\n"])
      end

      it "runs unchanged with all of its variables set" do
        server = ready(env: { **set, "RUBYLIB" => path("lib") })
        expect([server.get.body, server.await_workers(2).size]).to eq(["production", 2])
        expect(File.read(path("tmp/pids/mine.pid")).to_i).to eq(server.master) if text.include?("pidfile")
        expect(server.log.include?("queue\n")).to eq(text.include?("solid_queue"))
        said = server.log.lines.grep(/\Afastrack: /).grep_v(threads)
        expect(said).to match(text.include?("solid_queue") ? [] : [/\Afastrack: SOLID_QUEUE_IN_PUMA is set, and nothing runs/])
      end
    end
  end
end
