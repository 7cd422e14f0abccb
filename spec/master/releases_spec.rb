# frozen_string_literal: true

require "openssl"

# Releases behind a link, as Capistrano and others make them. docs/upgrading.md has this as a table.
RSpec.describe "The release that `current` leads to", linux: "proc(5)", exec: "generation 0 is a program of its own", once: "processes and proxies" do
  include ReexecHelpers

  let(:top) { File.realpath(Dir.mktmpdir("fastrack-releases")).tap { |dir| File.chmod(0o755, dir) } }
  let(:current) { "#{top}/current" }

  after { |one| [(Server.show_logs if one.exception), Server.stop_all(:example), FileUtils.remove_entry(top)] }

  def folder(number) = "#{top}/releases/#{number}"

  def release(number)
    dir = folder(number)
    certificate = Edge.files("a", hosts: ["release-#{number}.test"])
    {
      "config.ru" => <<~RUBY, "config/fastrack.rb" => <<~'RUBY', "greeting/lib/greeting.rb" => "GREETING = #{number}", "public/file.txt" => number.to_s,
        require "greeting" if defined?(Bundler)
        File.write("#{top}/loading", "") && (sleep 0.01 while File.exist?("#{top}/hold"))
        raise "no luck" if File.exist?("#{top}/fail")
        here = File.realpath(__dir__)
        run lambda { |env|
          if %w[/send /late].include?(env["PATH_INFO"])
            File.write("#{top}/asked", "") && (sleep 0.01 until File.exist?("#{top}/go")) if env["PATH_INFO"] == "/late"
            next [200, { "X-Sendfile" => "\#{here}/private/file.txt" }, []]
          end
          log = File.readlink("/proc/self/fd/2")[%r{releases/(\\d+)/log/app.log}, 1]
          [200, {}, [{ code: #{number}, gem: defined?(GREETING) ? GREETING : #{number}, config: $config, log: log.to_i }.inspect]]
        }
      RUBY
        $config = File.basename(File.realpath("..", __dir__)).to_i
        max_workers 1
        listen "127.0.0.1:0"
        bind "ssl://localhost:0?cert=tls/a.pem&key=tls/a.key"
        public_files "public"
        sendfile_root "private"
        stderr_path "log/app.log"
        compress false
      RUBY
      "private/file.txt" => "#{number}, sent", "log/app.log" => "", "tls/a.pem" => certificate["a.pem"], "tls/a.key" => certificate["a.key"],
      "greeting/greeting.gemspec" => "Gem::Specification.new { |s| s.name, s.version, s.summary, s.authors, s.files = 'greeting', '#{number}', 's', ['a'], ['lib/greeting.rb'] }",
      "bin/fastrack" => "ENV['BUNDLE_GEMFILE'] ||= File.expand_path('../Gemfile', __dir__)\nrequire 'bundler/setup'\nload #{Server::COMMAND.inspect}\n",
      "Gemfile" => "gem 'rack'\ngem 'rackup' if Gem::Specification.any? { |one| one.name == 'rackup' }\ngem 'rhebok-rs', path: #{Server::ROOT.inspect}\ngem 'greeting', path: 'greeting'\n"
    }.each { |name, text| Folder.write(dir, name, text) }
    system(Server::CLEAN_ENVIRONMENT, "bundle", "lock", "--local", chdir: dir, %i[out err] => File::NULL) or skip "Bundler does not find the gems on this machine"
    lead_to(number)
  end

  # In one step, as Capistrano does it.
  def lead_to(number)
    File.symlink("releases/#{number}", "#{top}/next")
    File.rename("#{top}/next", current)
  end

  def ports(server) = server.log.scan(/Fastrack starts Listening on [^ ]+:(\d+)/).flatten.uniq

  def ask(server, path)
    TCPSocket.open("127.0.0.1", ports(server).first) { |socket| socket.write("GET #{path} HTTP/1.0\r\nHost: site\r\n\r\n") && HttpResponse.parse(socket.read).body }
  end

  def certificate(server)
    socket = OpenSSL::SSL::SSLSocket.new(TCPSocket.new("localhost", ports(server).last))
    socket.connect.peer_cert.extensions.find { |one| one.oid == "subjectAltName" }.value[/release-(\d+)/, 1].to_i
  ensure
    socket&.close
    socket&.to_io&.close
  end

  # All that can be seen of a release.
  def seen(server)
    "#{ask(server, "/")} file: #{ask(server, "/file.txt")} sent: #{ask(server, "/send")} certificate: #{certificate(server)}"
  rescue SystemCallError, IOError, OpenSSL::SSL::SSLError, NoMethodError => e
    e.message
  end

  def whole(number, code = number)
    "#{{ code: code, gem: code, config: number, log: number }} file: #{number} sent: #{number}, sent certificate: #{number}"
  end

  def expect_release(server, number)
    last = nil
    eventually(30, -> { "#{last}\ninstead of\n#{whole(number)}\n#{server.log}" }) { (last = seen(server)) == whole(number) }
  end

  def reload(server) = server.signal(:HUP, to: server.master)

  def restart(server)
    old = server.master
    usr2(server, to: old)
    eventually(60, -> { server.log }) { server.master != old && [true, false].include?(server.ended?) && !ProcessTable.alive?(old) }
  end

  fastrack = [RbConfig.ruby, "-w", Server::COMMAND, "-e", "production"]
  here = ->(text) { ["sh", "-c", text, "sh", *fastrack] }
  # In the folder, with a PWD or without.
  in_folder = lambda do |words, environment = {}|
    [RbConfig.ruby, "-e", "Dir.chdir('CURRENT'); exec({ 'PWD' => nil, **#{environment.inspect} }, *ARGV)", *words]
  end
  ways = {
    "systemd, which sets no PWD" => in_folder[fastrack],
    "systemd with Environment=PWD" => in_folder[fastrack, { "PWD" => "CURRENT" }],
    "`bundle exec`" => in_folder[["bundle", "exec", *fastrack.drop(2)]],
    "a binstub" => in_folder[[RbConfig.ruby, "CURRENT/bin/fastrack", "-e", "production"]],
    "BUNDLE_GEMFILE" => in_folder[fastrack, { "BUNDLE_GEMFILE" => "CURRENT/Gemfile", "RUBYOPT" => "-rbundler/setup" }],
    "-c with an absolute path, and --dir" => here['cd / && shift 0; exec "$@" -c CURRENT/config/fastrack.rb --dir CURRENT CURRENT/config.ru'],
    "-c with a relative path" => in_folder[[*fastrack, "-c", "config/fastrack.rb"]],
    "`cd current` in a shell" => here['cd CURRENT && exec "$@"'],
    "foreman, whose shell is in the folder" => ["sh", "-c", 'cd CURRENT && exec sh -c "exec $*"', "sh", *fastrack]
  }

  way_in = in_folder[fastrack]
  define_method(:way_in) { way_in }

  def start_by(words)
    release(1)
    Server.ready(ru: "", command: words.map { |word| word.gsub("CURRENT", current) })
  end

  it "is in docs/upgrading.md for each way to start that is tried here" do
    table = File.read(File.join(Server::ROOT, "docs/upgrading.md"), encoding: "UTF-8")[/^### Releases behind a link$.*?(?=^### )/m]
    rows = table.scan(/^\| (.+?) \| (.+?) \| (.+?) \|$/).drop(2).map { |cells| cells.map { |cell| cell.delete("`") } }
    expect(rows.map(&:first)).to eq([*ways.keys.map { |way| way.delete("`") }, "rackup, or bin/rails server", "a container, as process 1"])
    expect(rows.map { |row| row.drop(1) }).to eq([["the new release"] * 2] * ways.size + [["the old release: the code stays", "the new release"],
                                                                                         ["the new release", "refused: replace the container"]])
  end

  it "is served as a whole after a restart, and the old one after HUP, where rackup has loaded the app" do
    words = [RbConfig.ruby, "-w", "-I", File.join(Server::ROOT, "lib"), "-S", "rackup", "-s", "Fastrack", "-E", "none", "-O", "ConfigFile=config/fastrack.rb"]
    server = start_by(in_folder[words])
    expect_release(server, 1)
    release(2)
    reload(server)
    eventually(20, -> { File.read("#{folder(1)}/log/app.log") }) { File.read("#{folder(1)}/log/app.log").include?("HUP: replacing 1 worker") }
    server.await_ready(2)
    expect_release(server, 1)
    restart(server)
    expect_release(server, 2)
  end

  it "is served as a whole after HUP where the server is process 1 of a container", if: Process.uid.zero? do
    skip "unshare is not permitted" unless system("unshare", "--pid", "--fork", "true", %i[out err] => File::NULL)
    server = start_by(["unshare", "--pid", "--fork", "--kill-child=TERM", *in_folder[fastrack]])
    expect_release(server, 1)
    release(2)
    server.signal(:HUP, to: ProcessTable.children(server.pid).first)
    expect_release(server, 2)
    server.signal(:TERM, to: ProcessTable.children(server.pid).first)
    server.wait
  end

  describe "while another one comes" do
    # A server of release 1, in which release 2 loads until the block has ended.
    def loading
      server = start_by(way_in)
      expect_release(server, 1)
      File.write("#{top}/hold", "")
      FileUtils.rm_f("#{top}/loading")
      release(2)
      reload(server)
      eventually(30, -> { server.log }) { File.exist?("#{top}/loading") }
      yield server
      File.unlink("#{top}/hold")
      server
    end

    it "is not served in part: files, X-Sendfile and certificate stay the old one's until the new code serves" do
      server = loading { |one| expect(seen(one)).to eq(whole(1)) }
      expect_release(server, 2)
    end

    it "is not served in part where the new code fails" do
      server = loading do |one|
        File.write("#{top}/fail", "")
        expect(seen(one)).to eq(whole(1))
      end
      eventually(20, -> { File.read("#{folder(1)}/log/app.log") }) { File.read("#{folder(1)}/log/app.log").include?("the old code serves on") }
      expect_release(server, 1)
    end

    it "an old worker's last request still gets the file that it names" do
      server = loading do |one|
        @late = Thread.new { ask(one, "/late") }
        eventually(20) { File.exist?("#{top}/asked") }
      end
      expect_release(server, 2)
      File.write("#{top}/go", "")
      expect(@late.value).to eq("1, sent")
    end
  end

  ways.each do |way, words|
    it "is served as a whole after reload, restart, rollback and the removal of others, where it is started by #{way}" do
      server = start_by(words)
      expect_release(server, 1)
      release(2)
      reload(server)
      expect_release(server, 2)
      FileUtils.rm_r(folder(1))
      release(3)
      restart(server)
      expect_release(server, 3)
      lead_to(2)
      reload(server)
      expect_release(server, 2)
      FileUtils.rm_r(folder(3))
      release(4)
      reload(server)
      expect_release(server, 4)
      FileUtils.rm_r(folder(2))
      lead_to(4)
      restart(server)
      expect_release(server, 4)
    end
  end
end
