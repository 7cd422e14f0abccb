# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/free_port"
require "open3"

# The scripts that a newcomer runs.
RSpec.describe "bin" do
  describe "bin/serve" do
    # What it starts is a server like any other.
    let(:server_class) do
      Class.new(Server) do
        private

        def rackup_command(*)
          [File.join(Server::ROOT, "bin/serve"), *(["config.ru"] if own_app?)]
        end

        def own_app?
          !File.zero?(File.join(dir, "config.ru"))
        end
      end
    end

    around { |example| FreePort.keep { |port| (@port = port) && example.run } }

    def serving(ru, **env)
      server = server_class.new(ru: ru, env: { "RUBY" => RbConfig.ruby, **env.transform_keys(&:to_s) })
      server.await_listening
      yield server
    ensure
      problems = server ? server.finish : []
      expect(problems).to eq([])
    end

    it "serves the example on the port and with the workers that are asked for, and TERM ends it with nothing left" do
      serving("", PORT: @port.to_s, MAX_WORKERS: "3") do |server|
        expect(server.log).to include("http://127.0.0.1:#{@port}/")
        expect(server.port).to eq(@port)
        workers = server.await_workers(3)
        pages = Array.new(10) { server.get.body }
        seen = pages.map do |page|
          [page[/worker.*process (\d+), of master #{server.master}/, 1], page[/requests so far.*>(\d+) by/, 1]].map(&:to_i)
        end
        expect(workers).to include(*seen.map(&:first))
        # Each worker counts its own, from 1 on.
        seen.group_by(&:first).each_value { |own| expect(own.map(&:last)).to eq([*1..own.size]) }
        expect(server.stop.exitstatus).to eq(0)
        expect(server.processes).to be_empty
      end
    end

    it "serves an app of its user's" do
      serving(Rackups::PID, PORT: "0", MAX_WORKERS: "1") do |server|
        expect(server.await_workers(1)).to eq([server.get.body.to_i])
      end
    end
  end

  describe "bin/setup", once: "a tool" do
    # A PATH with all that there is here, but some programs.
    def path_without(*programs)
      folder = File.join(@dir, "bin")
      FileUtils.mkdir(folder)
      %w[/bin /usr/bin].flat_map { |place| Dir.glob("#{place}/*") }.each do |file|
        link = File.join(folder, File.basename(file))
        File.symlink(file, link) unless programs.include?(File.basename(file)) || File.symlink?(link)
      end
      folder
    end

    around do |example|
      Dir.mktmpdir("fastrack-bin") do |dir|
        @dir = dir
        example.run
      end
    end

    # What it says where those programs are missing and it may not install them.
    def lacking(*programs, arguments: [], **more)
      env = { "PATH" => more[:PATH] || path_without(*programs), "HOME" => @dir, "CARGO_HOME" => nil, "CARGO" => nil, "RUBY" => RbConfig.ruby,
              "FASTRACK_NO_INSTALL" => "yes", "FASTRACK_LANE" => nil }
      output, status = Open3.capture2e(env.merge(more.transform_keys(&:to_s)), File.join(Server::ROOT, "bin/setup"), *arguments)
      expect(status.exitstatus).to eq(1)
      output
    end

    # A user who may use sudo, which notes what it was to run, and a Debian whose apt knows no package before its lists are fetched.
    def new_system(policy = "echo '  Candidate: 1.85.0'")
      { "id" => "echo 1000", "apt-get" => "exit 100", "apt-cache" => "[ -e lists ] || exit 100\n[ $1 = show ] || #{policy}",
        "sudo" => "case \"$*\" in '-n true') ;; *apt-get*) echo \"$@\" >>said ;; *) cat >/dev/null ;; esac\ncase \"$*\" in *update*) : >lists ;; esac" }.each do |name, text|
        File.unlink(File.join(@dir, "bin", name)) if File.symlink?(File.join(@dir, "bin", name))
        File.write(File.join(@dir, "bin", name), "#!/bin/sh\ncd #{@dir}\n#{text}\n", perm: 0o755)
      end
    end

    # A checkout of its own with what is compiled here. make says that it was called, and does nothing.
    def checkout
      FileUtils.mkdir_p(File.join(@dir, "checkout"))
      %w[bin lib ext crates Cargo.toml Cargo.lock Gemfile rhebok-rs.gemspec].each { |name| FileUtils.cp_r(File.join(Server::ROOT, name), File.join(@dir, "checkout")) }
      File.write(File.join(@dir, "make"), "#!/bin/sh\necho make is called\nexit 3\n", perm: 0o755)
      File.join(@dir, "checkout")
    end

    it "compiles the extension when a source has changed, and only then" do
      place = checkout
      setup = -> { Open3.capture2e({ "PATH" => "#{@dir}:#{ENV.fetch("PATH")}", "RUBY" => RbConfig.ruby }, File.join(place, "bin/setup")) }
      output, status = setup.call
      expect([status.exitstatus, output]).to match([0, /the extension for Ruby #{RUBY_VERSION} is up to date/])
      expect(output).not_to include("make is called")
      FileUtils.touch(File.join(place, "crates/http/src/lib.rs"))
      expect(setup.call.first).not_to include("make is called")
      File.write(File.join(place, "crates/http/src/lib.rs"), "// another line\n", mode: "a")
      2.times do
        output, status = setup.call
        expect([status.success?, output]).to match([false, /compiling the extension for Ruby #{RUBY_VERSION}.*make is called/m])
      end
    end

    it "names all that is missing at once, where it cannot install it" do
      output = lacking("cargo", "make", "apt-get", "dpkg")
      expect(output).to match(/missing: .*\bmake; install it with: /).and match(/missing: cargo .*rustup/)
    end

    it "fetches the lists of packages before it says that there is none of cargo" do
      skip "takes Debian's packages" unless File.executable?("/usr/bin/apt-get")
      path = path_without("cargo", "make", "curl")
      new_system
      output = lacking(PATH: path, FASTRACK_NO_INSTALL: nil)
      expect(output).not_to include("rustup")
      expect(output).to match(/fetching the lists of packages\n.*installing Debian packages: .*\bmake.*\bcargo/m)
      expect(File.readlines(File.join(@dir, "said")).values_at(0, 2)).to match([/\Aapt-get -q update$/, /install --no-install-recommends .*\bcargo$/])
    end

    it "takes the newer Rust that Debian 12 has beside its own, with the tools that the tests need" do
      skip "takes Debian's packages" unless File.executable?("/usr/bin/apt-get")
      path = path_without("cargo", "cargo-fmt", "cargo-clippy", "curl")
      new_system("case $2 in *-clippy-web) echo '  Candidate: (none)' ;; *-web) echo '  Candidate: 1.96.0+dfsg1-1~deb12u2' ;; *) echo '  Candidate: 0.66.0+ds1-1' ;; esac")
      output = lacking(PATH: path, FASTRACK_NO_INSTALL: nil, arguments: ["--test"])
      expect(output).not_to include("rustup")
      expect(File.readlines(File.join(@dir, "said"))[2].split).to include("cargo-web", "rustfmt-web").and satisfy { |words| words.grep(/clippy/).empty? }
    end

    it "names what only the tests need when it is to prepare for them" do
      skip "takes Debian's packages" unless File.executable?("/usr/bin/apt-get")
      output = lacking("cargo", "c++", "shellcheck", "systemd-analyze", "systemd-socket-activate", arguments: ["--test"])
      expect(output[/missing: (.*); install it with/, 1].split(", "))
        .to include("a C++ compiler", "shellcheck", "systemd-analyze", "systemd-socket-activate")
      expect(output[/apt-get install --no-install-recommends (.*) \(as root\)/, 1].split).to include("g++", "shellcheck", "systemd")
    end
  end
  describe "bin/lane", once: "a tool" do
    it "says in one line why a lane is not to be had, with a status of its own" do
      Dir.mktmpdir("fastrack-bin") do |empty|
        env = { "PATH" => "#{empty}:/bin", "HOME" => empty }
        File.write(File.join(empty, "uname"), "#!/bin/sh\necho Plan9\n", perm: 0o755)
        output, status = Open3.capture2e(env, File.join(Server::ROOT, "bin/lane"), "rack3", "true")
        expect([output, status.exitstatus]).to eq(["lane: lane rack3 is not to be had here: it takes Linux\n", 69])
      end
    end
  end
end
