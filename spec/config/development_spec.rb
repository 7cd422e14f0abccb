# frozen_string_literal: true

require "io/console"
require "pty"

RSpec.describe "In development", once: "options, the terminal and signals, which are the same in every Ruby" do
  include CommandFolder

  # Five with rackup, as with Rhebok: its users start it so in production. APP_ENV is Sinatra's variable.
  rackup = { program: %w[-S rackup], arguments: %w[-s Fastrack -o 127.0.0.1] }
  [[1, {}], [2, { arguments: %w[-w 2] }], [2, { env: { "WEB_CONCURRENCY" => "2" } }],
   [5, rackup], [1, { **rackup, env: { "RACK_ENV" => "development" } }], [1, { **rackup, arguments: rackup[:arguments] + %w[-E development] }],
   [5, { **rackup, env: { "RAILS_ENV" => "production" } }]].each do |count, given|
    program, arguments, env = given.values_at(:program, :arguments, :env)
    it "there are #{count} workers with #{[program ? "rackup" : "fastrack", *arguments, *env&.map { |pair| pair.join("=") }].join(" ")}" do
      server = ready(*arguments, "-p", "0", env: env.to_h, **given.slice(:program))
      expect(server.log).to include("Fastrack is ready Workers:#{count} ")
    end
  end

  it "there are five workers with `bundle exec rackup`, unless -E says development" do
    write("Gemfile", "gem \"rack\"\ngem \"rackup\" if Gem::Specification.any? { |spec| spec.name == \"rackup\" }\n" \
                     "gem \"rhebok-rs\", path: #{Server::ROOT.inspect}\n")
    skip "Bundler does not find the gems on this machine" unless system("bundle check", chdir: @dir, %i[out err] => File::NULL)
    # With this first line Bundler loads it into its own process.
    write("bin/rackup", "#!/usr/bin/env ruby\nrequire \"rack\"\nrequire \"rackup\" if Rack.release >= \"3\"\n" \
                        "Object.const_get(Rack.release >= \"3\" ? :Rackup : :Rack)::Server.start\n")
    File.chmod(0o755, path("bin/rackup"))
    bundle = ->(*words) { ready("exec", "bin/rackup", "-s", "Fastrack", "-o", "127.0.0.1", "-p", "0", *words, program: ["-S", "bundle"]) }
    expect(bundle.call.log).to include("Fastrack is ready Workers:5 ")
    expect(bundle.call("-E", "development").log).to include("Fastrack is ready Workers:1 ")
  end

  it "the log has addresses to open, and elsewhere it has not" do
    server = ready("-p", "0")
    expect(server.log).to match(%r{^Fastrack starts Listening on localhost:(\d+) Pid:\d+\n(?:Fastrack.*\n)?\* Listening on http://localhost:\1\nUse Ctrl-C to stop$})
    expect(ready("-p", "0", "-e", "production").log).not_to include("* Listening")
  end

  it "a request has no time limit, unless one is set" do
    write("config.ru", "run ->(env) { [200, {}, [env['fastrack.timeout'].inspect]] }")
    configuration = lambda do |text|
      write("config/fastrack.rb", "#{text}\nafter_fork { |server, worker| puts \"limit \#{server.timeout} \#{server.config[:worker_boot_timeout]}\" }")
      ready("-p", "0").log[/^limit .*/]
    end
    expect([configuration.call(""), configuration.call("request_timeout 5")]).to eq(["limit 0.0 0.0", "limit 5.0 0.0"])
  end

  describe "at a terminal" do
    # A server in the foreground of a terminal of its own, as a shell starts it.
    def at_terminal(*arguments, terminal: "dumb", program: [Server::COMMAND])
      PTY.spawn(Server::CLEAN_ENVIRONMENT.merge("TERM" => terminal, "PWD" => @dir), RbConfig.ruby, "-w", *program, "-p", "0", *arguments,
                chdir: @dir) do |output, input, pid|
        @screen = +""
        @output = output
        @input = input
        @pid = pid
        read_until(/Fastrack is ready/)
        @port = @screen[/Listening on localhost:(\d+)/, 1].to_i
        yield input
      ensure
        finish(pid)
      end
    end

    # What runs yet is ended with its workers.
    def finish(pid)
      return if @status

      Process.kill(:TERM, pid)
      Process.wait(pid)
    end

    def read_until(pattern)
      eventually(20, -> { "no #{pattern.inspect} in:\n#{@screen}" }) do
        @screen << (fresh = @output.wait_readable(0.05) ? @output.read_nonblock(65_536, exception: false).to_s : "")
        # Reline asks a terminal where its cursor is.
        fresh.scan("\e[6n") { @input.write("\e[1;1R") }
        pattern.match?(@screen)
      rescue Errno::EIO
        pattern.match?(@screen)
      end
    end

    def ended = eventually(20, -> { "it goes on:\n#{@screen}" }) { @status = Process.wait2(@pid, Process::WNOHANG)&.last }
    def ask(path = "/")
      socket = TCPSocket.new("localhost", @port)
      socket.write("GET #{path} HTTP/1.0\r\n\r\n")
      socket
    end

    it "binding.irb in a request has the terminal" do
      write("config.ru", "run lambda { |env|\n  secret = 41\n  binding.irb\n  [200, {}, [secret.to_s]]\n}")
      write(".irbrc", "IRB.conf[:USE_MULTILINE] = IRB.conf[:USE_AUTOCOMPLETE] = false")
      at_terminal do |input|
        socket = ask
        read_until(/irb\(.*\).*> /)
        input.puts("puts 'twice ' + (secret * 2).to_s; secret += 1")
        read_until(/twice 82/)
        input.puts("exit")
        expect(socket.read).to end_with("42")
        socket.close
      end
    end

    it "Ctrl-C ends it at once, in the middle of a request, and a debugger's terminal mode with it" do
      write("config.ru", "require 'io/console'\nrun ->(env) { STDIN.raw!(intr: true); STDIN.echo = false; puts 'in the app'; sleep }")
      at_terminal do |input|
        expect(input.echo?).to be(true)
        socket = ask
        read_until(/in the app/)
        expect(input.echo?).to be(false)
        input.write("\C-c")
        ended
        expect([@status.exitstatus, input.echo?]).to eq([0, true])
        socket.close
      end
    end

    it "Ctrl-C at the prompt of `debugger` is for its line, and the server goes on until there is no prompt" do
      skip "there is no gem debug with a terminal's line editor" unless Gem::Specification.any? { |gem| gem.name == "debug" } && Gem.ruby_version >= Gem::Version.new("3.1")
      write("config.ru", "require 'debug/prelude'\nrun lambda { |env|\n  secret = 41\n  env['PATH_INFO'] == '/' ? debugger : (puts 'asleep'; sleep)\n  [200, {}, [secret.to_s]]\n}")
      at_terminal(terminal: "xterm") do |input|
        socket = ask
        read_until(/\(rdbg\) /)
        input.write("garbage")
        read_until(/garbage/)
        input.write("\C-c")
        read_until(/\^C.*\(rdbg\) /m)
        # Longer than the server takes to find out whose it was: nothing that can be seen says that it has.
        sleep 2
        input.write("p 'still ' + 'here'\n")
        read_until(/still here/)
        input.write("continue\n")
        read_until(/"GET \//)
        expect(socket.read).to end_with("41")
        socket.close
        socket = ask("/sleep")
        read_until(/asleep/)
        input.write("\C-c")
        ended
        socket.close
        expect(@status.exitstatus).to eq(0)
      end
    end

    it "Ctrl-\\ logs backtraces, and everything goes on" do
      write("config.ru", Rackups::GATE)
      at_terminal do |input|
        socket = ask("/slow")
        eventually { File.exist?(path("started")) }
        2.times do |count|
          input.write("\C-\\")
          read_until(/(is at:.*config\.ru:\d+:in.*){#{count + 1}}/m)
        end
        write("go", "")
        expect(socket.read).to start_with("HTTP/1.1 200")
        socket.close
        Process.kill(:TERM, @pid)
        ended
        expect(@status.exitstatus).to eq(0)
      end
    end

    # Programs that have loaded the app before the server.
    rackup = { program: ["-I", Server::LIB, *%w[-S rackup -s Fastrack -o localhost -E development -O ConfigFile=config/puma.rb]] }

    it "tmp/restart.txt restarts it in its process, which the shell waits for" do
      write("config.ru", "code = File.read('code')\nrun ->(_env) { [200, {}, [code]] }")
      write("code", "old")
      write("tmp/.keep", "")
      write("config/puma.rb", "plugin :tmp_restart\npidfile 'tmp/server.pid'\n" \
                              "on_restart { File.write('hook', Process.pid); ENV['FROM_HOOK'] = 'seen' }\nputs \"hook \#{ENV['FROM_HOOK']}\"")
      at_terminal(**rackup) do
        expect(ask.read).to end_with("old")
        write("code", "new")
        FileUtils.touch(path("tmp/restart.txt"))
        read_until(/restarting \(in this process\).*Fastrack is ready/m)
        @port = @screen.scan(/Listening on localhost:(\d+)/).last.first.to_i
        expect(ask.read).to end_with("new")
        expect(%w[tmp/server.pid hook].map { |name| File.read(File.join(@dir, name)).to_i }).to eq([@pid, @pid])
        expect(@screen).to include("hook seen")
      end
    end

    { "Ctrl-C" => "\C-c", "TERM" => nil }.each do |what, key|
      it "#{what} ends it, also while it waits for a request to start again" do
        write("config.ru", Rackups::GATE)
        write("tmp/.keep", "")
        write("config/puma.rb", "plugin :tmp_restart\nafter_stopped { puts 'has stopped' }")
        at_terminal(**rackup) do |input|
          socket = ask("/slow")
          eventually { File.exist?(path("started")) }
          FileUtils.touch(path("tmp/restart.txt"))
          read_until(/restarting \(in this process\)/)
          key ? input.write(key) : Process.kill(:TERM, @pid)
          write("go", "") unless key
          ended
          read_until(/has stopped/)
          expect(@status.exitstatus).to eq(0)
          socket.close
        end
      end
    end
  end
end
