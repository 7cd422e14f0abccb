# frozen_string_literal: true

require "fastrack/listener/inherited"
require "fastrack/process/sd_notify"

# The locale's encoding is US-ASCII without LANG, as in slim images and under systemd.
RSpec.describe "Bytes that are not valid in the locale's encoding", exec: "the locale of a new process" do
  include CommandFolder

  before do
    write("config.ru", <<~'RUBY')
      run(lambda do |env|
        File.unlink("caf\u00e9.txt") if env["PATH_INFO"] == "/unlink"
        raise "message \xE9 of bytes".b + env["QUERY_STRING"] if env["PATH_INFO"] == "/raise"
        [env["fastrack.timeout"].call(1), sleep] if env["PATH_INFO"] == "/sleep"
        [200, {}, [ENV["ODD"].to_s, " ", Dir.pwd]]
      end)
    RUBY
  end

  def run_in(folder, *arguments, env: {})
    output, status = Open3.capture2e(Server::CLEAN_ENVIRONMENT.merge(locale, env), RbConfig.ruby, "-w", Server::COMMAND, *arguments, chdir: folder)
    [output.b, status.exitstatus]
  end

  # A server with such bytes in its variables, folder, arguments, and in the names of its files.
  def odd_server(*arguments, **variables)
    @folder = File.join(@dir.b, odd)
    FileUtils.mkdir_p(@folder)
    FileUtils.cp(path("config.ru"), @folder)
    File.write(File.join(@folder, "#{odd}.rb".b), "max_workers 1 # \u00e9\nstderr_path '\u00e9.log'\n")
    @words = ["-c", "#{odd}.rb".b, "-P", "#{odd}.pid".b, "-O", "AccessLog=access-#{odd}.log".b, "-b", "127.0.0.1:0", "-E", "none", *arguments]
    command = ["sh", "-c", 'cd "$0" && exec "$@"', @folder, RbConfig.ruby, "-w", "-I", Server::LIB, Server::COMMAND, *@words]
    Server.start(ru: "", command: command, env: locale.merge(variables.transform_keys(&:to_s)))
  end

  def errors = File.binread(File.join(@folder, "\u00e9.log".b))
  def await(text) = eventually(Server::DEADLINE, -> { errors }) { errors.include?(text.b) }

  {
    "UTF-8 without LANG" => [{ "LANG" => nil, "LC_ALL" => nil, "LC_CTYPE" => nil }, "caf\xC3\xA9".b],
    "Latin-1 under C.UTF-8" => [{ "LANG" => "C.UTF-8", "LC_ALL" => nil, "LC_CTYPE" => nil }, "caf\xE9".b]
  }.each do |name, (locale, odd)|
    context "of #{name}" do
      let(:locale) { locale }
      let(:odd) { odd }

      it "may be in variables, and in what they are called, for rackup too" do
        server = Server.start(ru: File.read(path("config.ru")), env: locale.merge("ODD" => odd, "NAME_#{odd}".b => odd), environment: "none")
        expect(server.get.body).to start_with("#{odd} ".b)
      end

      it "may be in PATH, the folder, arguments, and names of files, which a new master and HUP also find" do
        server = odd_server(PATH: "#{ENV.fetch("PATH")}:/".b + odd, ODD: odd)
        expect(server.get.body).to eq("#{odd} #{@folder}".b)
        server.await_ready.reload
        server.await_ready(2)
        old = server.master
        server.signal(:USR2)
        eventually(Server::DEADLINE, -> { server.log + errors }) { server.master != old && server.ended? }
        expect(server.get.body).to eq("#{odd} #{@folder}".b)
        expect(run_in(@folder, "stop", *@words).last).to eq(0)
        expect(Dir.children(@folder.b).map(&:b)).to contain_exactly("config.ru", "#{odd}.rb".b, "access-#{odd}.log".b, "\u00e9.log".b)
      end

      it "may be where `fastrack check` and `fastrack status` look" do
        odd_server.await_ready
        expect(run_in(@folder, "check", *@words)).to match([a_string_including("app: loaded"), 0])
        eventually { run_in(@folder, "status", *@words).then { |output, status| status.zero? && output.include?("serving") } }
        expect(run_in(@folder, "check", "-P", "~/\u00e9.pid", "config.ru", env: { "HOME" => @folder }).last).to eq(0)
      end

      it "may be in an exception's message, in a request, and in the path of an app that takes too long" do
        server = odd_server
        expect(server.get("/raise?caf%C3%A9", { "X-Request-Id" => odd }).status).to eq(500)
        await("message")
        expect(errors).to match(/failed: .*: message .*caf%C3%A9 \(RuntimeError\)/n)
        expect(server.get("/sleep").status).to eq(504)
        await("config.ru:4:in ")
      end

      it "may be in the folder from which an app removes a file" do
        server = odd_server
        File.write(File.join(@folder, "caf\u00e9.txt".b), "")
        expect(server.get("/unlink").status).to eq(200)
        expect(File.exist?(File.join(@folder, "caf\u00e9.txt".b))).to be(false)
      end

      it "are told in one line where an argument or a ConfigFile is wrong" do
        write("wrong.rb", "max_workers '#{odd}'\n".b)
        write("broken.rb", "max_workers = '#{odd}\n".b)
        [["-O", "#{odd}=1".b], ["-b", "[#{odd}]".b], ["--#{odd}".b], ["-w", odd], ["-c", "#{odd}.rb".b], ["-c", "wrong.rb"],
         ["-c", "broken.rb"], ["a", odd]].each do |words|
          output, status = run_in(@dir, "check", *words)
          expect([output.lines.grep_v(/\Aloading from/n).size, output.lines.last, status]).to match([1, /\Afastrack: /n, 1])
        end
      end
    end
  end

  # As in Latin-1, in a locale of UTF-8.
  let(:latin) { "caf\xE9".dup.force_encoding("UTF-8") }

  it "may be in the variables of start_server and systemd" do
    expect { Fastrack::ServerStarter.listeners("SERVER_STARTER_PORT" => "#{latin}=99") }
      .to raise_error(Fastrack::ListenError) { |error| expect(error.message.b).to include("99 for caf\xE9".b) }
    datagrams = Socket.new(:UNIX, :DGRAM).tap { |one| one.bind(Addrinfo.unix(path(latin))) }
    Fastrack::SdNotify.new("NOTIFY_SOCKET" => path(latin)).ready
    expect(datagrams.recv(64)).to start_with("READY=1")
  ensure
    datagrams&.close
  end
end
