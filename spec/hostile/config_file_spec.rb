# frozen_string_literal: true

# A master that root runs, in a folder of its app's user: what he writes there runs as him, not as root.
RSpec.describe "Files that the app's user writes for a master of root's", if: Process.uid.zero? && RUBY_PLATFORM.include?("linux"), once: "processes" do
  let(:user) { Etc.getpwnam("nobody") }
  let(:dir) { Dir.mktmpdir("fastrack-root").tap { |path| FileUtils.chmod(0o755, path) && File.chown(user.uid, user.gid, path) } }
  # Says in the folder who has run it.
  let(:teller) { "File.open(\"#{dir}/\#{Process.euid} \#{File.basename(__FILE__)}\", 'w').close\n" }

  before do
    write("config.ru", "run ->(_env) { [200, {}, ['ok']] }")
    Dir.mkdir("#{dir}/config")
    File.chown(user.uid, user.gid, "#{dir}/config")
  end

  after { |one| [(Server.show_logs if one.exception), Server.stop_all(:example), FileUtils.remove_entry(dir)] }

  def write(name, text)
    File.write("#{dir}/#{name}", text)
    File.chown(user.uid, user.gid, "#{dir}/#{name}")
  end

  def serve(*command, flags: %w[-p 0 -o 127.0.0.1 -O User=nobody])
    words = [*command, Server::COMMAND, "-e", "production", "-w", "1", *flags]
    Server.ready(ru: "", command: ["sh", "-c", 'cd "$0" && exec "$@"', dir, *words])
  end

  def serve_bundle
    write("Gemfile", "gem 'rhebok-rs', path: #{Server::ROOT.inspect}\n")
    system(Server::CLEAN_ENVIRONMENT, "bundle", "lock", "--local", chdir: dir, %i[out err] => File::NULL) or skip "Bundler does not find the gems"
    write("config/fastrack.rb", "")
    serve("bundle", "exec")
  end

  # Starts a new master, and waits until it serves, or has failed.
  def usr2(server, failing: false)
    server.signal(:USR2)
    eventually(30, -> { server.log }) { server.log.scan("Fastrack is ready").size == 2 || (failing && server.log.include?("this one carries on")) }
  end

  def tellers = Dir.children(dir).grep(/\A\d+ /).map { |name| name.split(" ", 2) }

  def as_nobody(*names) = names.map { |name| [user.uid.to_s, name] }

  it "a ConfigFile that was not there at the start is read at HUP, as him" do
    server = serve
    write("config/fastrack.rb", teller)
    server.signal(:HUP)
    server.await_ready(2)
    expect(tellers).to eq(as_nobody("fastrack.rb"))
  end

  it "a ConfigFile that was not there at the start, and what it requires, is read at USR2, as him" do
    server = serve
    write("feature.rb", teller)
    write("config/fastrack.rb", "#{teller}require './feature'\n")
    usr2(server)
    expect(tellers).to match_array(as_nobody("fastrack.rb", "feature.rb"))
    expect(server.get.body).to eq("ok")
  end

  it "the ConfigFile that the start has read is read at USR2, as him" do
    write("config/fastrack.rb", "")
    server = serve(flags: %w[-p 0 -o 127.0.0.1 -O User=nobody -c config/fastrack.rb])
    write("config/fastrack.rb", teller)
    usr2(server)
    expect(tellers).to eq(as_nobody("fastrack.rb"))
  end

  it "a Gemfile that he can change makes root refuse USR2, and HUP goes on" do
    server = serve_bundle
    write("Gemfile", "#{File.read("#{dir}/Gemfile")}#{teller}")
    server.signal(:USR2)
    server.await_log(/USR2 is ignored: user nobody can change .*, which root would run: stop and start the server$/)
    expect(tellers).to eq([])
    server.signal(:HUP)
    server.await_ready(2)
    expect(tellers).to eq(as_nobody("Gemfile"))
  end

  it "a library in a folder of -I is not loaded by root, neither at HUP nor at USR2" do
    Dir.mkdir("#{dir}/lib")
    write("lib/ipaddr.rb", teller)
    write("config/fastrack.rb", "")
    server = serve(flags: %w[-p 0 -o 127.0.0.1 -O User=nobody -I lib])
    write("config/fastrack.rb", "trusted_proxies '10.1.1.1'\n")
    server.signal(:HUP)
    server.await_log(/HUP/)
    usr2(server, failing: true)
    expect(tellers.uniq - as_nobody("ipaddr.rb")).to eq([])
  end

  it "the Gemfile, and what it and the ConfigFile read and require, are his at HUP" do
    server = serve_bundle
    write("Gemfile", "#{File.read("#{dir}/Gemfile")}#{teller}")
    %w[.env feature.rb].each { |name| write(name, teller) }
    write("config/fastrack.rb", "#{teller}eval(File.read('.env'), nil, '.env')\nrequire './feature'\n")
    server.signal(:HUP)
    server.await_ready(2)
    expect(tellers).to match_array(as_nobody("Gemfile", "fastrack.rb", ".env", "feature.rb"))
  end

  it "a ConfigFile that names another user at HUP changes nothing" do
    write("config/fastrack.rb", "user 'nobody'")
    server = serve(flags: %w[-O Host=127.0.0.1 -O Port=0])
    write("config/fastrack.rb", "user 'root'\n")
    server.signal(:HUP)
    server.await_log(/HUP changes nothing: .*only a start of the server can change the user/)
    expect(server.get.body).to eq("ok")
  end

  it "a ConfigFile that names no user any more at HUP changes nothing, and the next one is still read as him" do
    write("config/fastrack.rb", "user 'nobody'")
    server = serve(flags: %w[-O Host=127.0.0.1 -O Port=0])
    write("config/fastrack.rb", teller)
    2.times do |index|
      server.signal(:HUP)
      server.await_log(/HUP changes nothing: .*only a start of the server can change the user/, index + 1)
    end
    expect([tellers, server.get.body]).to eq([as_nobody("fastrack.rb"), "ok"])
  end

  it "a log that he names at HUP in a folder of root's is not made" do
    Dir.mktmpdir("fastrack-vault", "/run") do |vault|
      FileUtils.chmod(0o755, vault)
      write("config/fastrack.rb", "user 'nobody'\nstderr_path '#{vault}/first.log'\n")
      server = serve(flags: %w[-O Host=127.0.0.1 -O Port=0])
      write("config/fastrack.rb", "user 'nobody'\nstderr_path '#{vault}/second.log'\n")
      server.signal(:HUP)
      eventually { File.read("#{vault}/first.log").include?("HUP changes nothing: ") }
      expect(Dir.children(vault)).to eq(["first.log"])
    end
  end

  it "a log and a pid file that he names at USR2 in a folder of root's are not made, and root's own log goes on" do
    Dir.mktmpdir("fastrack-vault", "/run") do |vault|
      File.write("#{vault}/first.log", "", perm: 0o600)
      write("config/fastrack.rb", "user 'nobody'\nstderr_path '#{vault}/first.log'\n")
      server = serve(flags: %w[-O Host=127.0.0.1 -O Port=0])
      usr2(server)
      log = -> { File.read("#{vault}/first.log") }
      eventually(30, log) { log.call.include?("the old master has ended") }
      ["stdout_path '#{vault}/second.log'", "pid '#{vault}/pid'"].each_with_index do |line, index|
        write("config/fastrack.rb", "user 'nobody'\nstderr_path '#{vault}/first.log'\n#{line}\n")
        server.signal(:USR2, to: log.call[/\(pid (\d+)\) is ready/, 1].to_i)
        eventually(30, log) { log.call.scan("this one carries on").size == index + 1 }
      end
      expect(Dir.children(vault)).to eq(["first.log"])
    end
  end

  it "another user that he names at USR2 is refused" do
    write("config/fastrack.rb", "user 'nobody'")
    server = serve(flags: %w[-O Host=127.0.0.1 -O Port=0])
    write("config/fastrack.rb", "user 'daemon'")
    usr2(server, failing: true)
    expect(server.log).to include("only a start of the server can change the user")
    expect(server.get.body).to eq("ok")
  end

  it "a port below 1024 that he names at USR2 is not opened" do
    write("config/fastrack.rb", "user 'nobody'\nlisten '127.0.0.1:0'\n")
    server = serve(flags: [])
    write("config/fastrack.rb", "user 'nobody'\nlisten '127.0.0.1:0'\nlisten '127.0.0.1:1'\n")
    usr2(server, failing: true)
    expect(server.log).to match(/cannot listen on 127.0.0.1:1: not permitted for this user/)
  end

  it "of a server that rackup starts, the ConfigFile is his at HUP, and root refuses USR2" do
    words = [*Server::RACKUP, "-s", "fastrack", "-E", "production", "-p", "0", "-o", "127.0.0.1", "-O", "User=nobody"]
    server = Server.ready(ru: "", command: ["sh", "-c", 'cd "$0" && exec "$@"', dir, *words])
    write("config/fastrack.rb", teller)
    server.signal(:HUP)
    server.await_ready(2)
    server.signal(:USR2)
    server.await_log(/USR2 is ignored: user nobody can change/)
    expect(tellers).to eq(as_nobody("fastrack.rb"))
  end

  it "a port below 1024 that he names at HUP is not opened" do
    write("config/fastrack.rb", "user 'nobody'\nlisten '127.0.0.1:0'\n")
    server = serve(flags: [])
    write("config/fastrack.rb", "user 'nobody'\nlisten '127.0.0.1:1'\n")
    server.signal(:HUP)
    server.await_log(/HUP changes nothing: cannot listen on 127.0.0.1:1/)
  end
end
