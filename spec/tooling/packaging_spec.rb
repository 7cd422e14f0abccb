# frozen_string_literal: true

require "open3"
require "rubygems/package"

# The gem as its users get it: built, compiled and installed from source, and as a line in a Gemfile.
RSpec.describe "packaging" do
  # A server that sees none of the checkout's lib/, as an application's own directory would have it.
  let(:server_class) do
    Class.new(Server) do
      private

      def rackup_command(*)
        super.tap { |words| words.slice!(words.index("-I"), 2) }
      end
    end
  end

  let(:app) do
    <<~RUBY
      # frozen_string_literal: true
      run(lambda do |_env|
        loaded = $LOADED_FEATURES.grep(%r{/fastrack/version\\.rb|/fastrack\\.(?:so|bundle)\\z})
        [200, { "content-type" => "text/plain" }, [loaded.sort.join("\\n")]]
      end)
    RUBY
  end

  # Commands of this example are those of an application: neither this checkout nor Bundler is in their environment.
  def run(*command, env: {}, chdir: Server::ROOT)
    clean = { "RUBYOPT" => nil, "RUBYLIB" => nil, "BUNDLE_GEMFILE" => nil }
    output, status = Open3.capture2e(clean.merge(env), *command, chdir: chdir, stdin_data: "")
    raise "#{command.join(" ")} ended with #{status.exitstatus}:\n#{output}" unless status.success?

    output
  end

  def gem_command(*arguments, **keywords)
    run(RbConfig.ruby, "-S", "gem", *arguments, **keywords)
  end

  # Serves the app and gives the features of Fastrack that it has loaded.
  def loaded_by_server(**keywords)
    server = server_class.new(ru: app, options: { "MaxWorkers" => 1 }, **keywords)
    server.await_listening
    response = server.get
    raise "status #{response.status}: #{server.log}" unless response.status == 200

    response.body.lines(chomp: true)
  ensure
    problems = server ? server.finish : []
    raise problems.join("\n") unless problems.empty?
  end

  around do |example|
    Dir.mktmpdir("fastrack-packaging") do |dir|
      @dir = File.realpath(dir)
      example.run
    end
  end

  let(:package) { File.join(@dir, "rhebok-rs.gem") }

  def build
    gem_command("build", "rhebok-rs.gemspec", "--output", package)
    Gem::Package.new(package).spec
  end

  it "builds a gem with all that compiling it takes, and nothing that was compiled" do
    spec = build
    expect(spec.name).to eq("rhebok-rs")
    expect(spec.version.to_s).to eq(File.read("lib/fastrack/version.rb")[/VERSION = "(.+)"/, 1])
    expect(spec.licenses).to eq(["MIT"])
    expect(spec.required_ruby_version).to be_satisfied_by(Gem::Version.new("3.1.0"))
    expect(spec.runtime_dependencies.map { |one| [one.name, one.requirement] }).to eq([["rack", Gem::Requirement.new(">= 2.2", "< 4")]])
    expect(spec.files).to include("Cargo.toml", "Cargo.lock", "LICENSE", "ext/fastrack/extconf.rb",
                                  "ext/fastrack/build/toolchain.rb", "ext/fastrack/src/lib.rs",
                                  "crates/http/src/lib.rs", "crates/sys/src/lib.rs", "crates/engine/src/lib.rs",
                                  "lib/rhebok-rs.rb", "lib/rack/handler/fastrack.rb", "exe/fastrack",
                                  "ext/fastrack/build/fallback.rb", "examples/rails/config.ru", "examples/systemd/fastrack.service")
    expect(spec.executables).to eq(["fastrack"])
    expect(spec.files.grep(%r{\.(?:so|bundle|o)\z|/target/|\Aspec/|\Abin/|\Acrates/[^/]+/(?:tests|examples|fuzz)/})).to be_empty
  end

  it "names the places where its users look, and has the files that its README and the pictures that its pages show" do
    spec = build
    expect(spec.homepage).to start_with("https://")
    expect(spec.metadata.values_at("source_code_uri", "documentation_uri", "bug_tracker_uri")).to all(start_with("#{spec.homepage}/"))
    expect(spec.metadata["changelog_uri"]).to match(%r{\A#{spec.homepage}/.*v#{spec.version}/CHANGELOG\.md\z})
    expect(spec.metadata["rubygems_mfa_required"]).to eq("true")
    expect(spec.files).to include(*File.read("README.md").scan(/\]\(((?:docs|examples)\/[^)#]+)/).flatten.uniq)
    pictures = spec.files.grep(/\.md\z/).flat_map { |page| File.read(page).scan(/!\[[^\]]*\]\(([^):]+)\)/).map { |name,| File.join(File.dirname(page), name).delete_prefix("./") } }
    expect(spec.files).to include(*pictures)
  end

  # A compilation of its own: half a minute and more. By the gem's own Makefile in the lane `system`, by rb_sys' in `ruby34`.
  it "installs from source into an empty GEM_HOME, and serves from another directory" do
    skip "compiled in the other lanes, which take less time" if ENV["FASTRACK_LANE"] == "rack3"
    home = File.join(@dir, "home")
    env = { "GEM_HOME" => home }
    build
    gem_command("install", "--local", "--no-document", package, env: env, chdir: @dir)

    expect(loaded_by_server(env: env)).to contain_exactly(
      start_with("#{home}/").and(end_with("/lib/fastrack/version.rb")),
      start_with("#{home}/").and(end_with("/fastrack/fastrack.#{RbConfig::CONFIG["DLEXT"]}"))
    )
    expect(Dir.glob("#{home}/gems/*/**/target")).to be_empty
    expect(run("#{home}/bin/fastrack", "--version", env: env, chdir: @dir)).to start_with("Fastrack ")
  end

  it "works as a path: line in an application's Gemfile" do
    gemfile = File.join(@dir, "Gemfile")
    rackup = Gem.find_files("rackup.rb").any? ? %(gem "rackup"\n) : ""
    File.write(gemfile, %(gem "rhebok-rs", path: "#{Server::ROOT}"\n#{rackup}))
    env = { "BUNDLE_GEMFILE" => gemfile, "HOME" => @dir }
    run(RbConfig.ruby, "-S", "bundle", "install", "--local", env: env, chdir: @dir)

    expect(loaded_by_server(env: env, wrapper: [RbConfig.ruby, "-S", "bundle", "exec"])).to all(start_with(Server::LIB))
  end

  describe "a platform's gem" do
    let(:name) { "fastrack.#{RbConfig::CONFIG["DLEXT"]}" }
    let(:api) { RUBY_VERSION[/\A\d+\.\d+/] }
    let(:compiled) { File.join(Server::LIB, "fastrack", api, name) }
    let(:platform) { Gems::PLATFORMS.find(&:here?) }

    # A PATH without what compiling takes.
    let(:bare_path) do
      FileUtils.mkdir(File.join(@dir, "bin"))
      %w[sh env gem].each do |program|
        file = ENV.fetch("PATH").split(":").map { |dir| File.join(dir, program) }.find { |one| File.executable?(one) }
        File.symlink(file, File.join(@dir, "bin", program))
      end
      File.join(@dir, "bin")
    end

    # The gem's files as they would be installed, with these compiled ones: contents by API version.
    def unpacked(**files)
      root = File.join(@dir, "gem")
      %w[lib ext Cargo.toml].each { |part| FileUtils.mkdir_p(root) && FileUtils.cp_r(File.join(Server::ROOT, part), root) }
      FileUtils.rm_rf(Dir.glob(File.join(root, "lib/fastrack/[0-9]*")))
      files.each do |version, text|
        FileUtils.mkdir_p(File.join(root, "lib/fastrack", version.to_s))
        File.write(File.join(root, "lib/fastrack", version.to_s, name), text)
      end
      root
    end

    # What a start says.
    def check(root, **environment)
      File.write(File.join(@dir, "config.ru"), "run ->(_env) { [200, {}, []] }\n")
      Open3.capture2e(Server::CLEAN_ENVIRONMENT.merge(environment.transform_keys(&:to_s)), RbConfig.ruby, "-w", "-I", "#{root}/lib",
                      "-r", "fastrack", "-r", "fastrack/cli", "-e", "exit Fastrack::CLI.run(['check'])", chdir: @dir)
    end

    def check_without_tools(root)
      check(root, PATH: bare_path, HOME: @dir, CARGO: nil, CARGO_HOME: nil)
    end

    before { require_relative "../../bin/lib/gems/platform_gem" }

    it "serves where there is nothing to compile with, and is not for Rubies that it has no file for" do
      file = Struct.new(:api, :path).new(api, compiled)
      packer = Gems::PlatformGem.new(platform, native_files: [file])
      gem = packer.pack(packer.specifications.find { |one| one.required_rubygems_version.satisfied_by?(Gem.rubygems_version) }, @dir)
      spec = Gem::Package.new(gem).spec

      expect(platform.gem_names.keys.map { |one| "rhebok-rs-#{spec.version}-#{one}.gem" }).to include(File.basename(gem))
      expect(spec.extensions).to eq([])
      expect(spec.files).to include("lib/fastrack/#{api}/#{name}", "ext/fastrack/extconf.rb", "Cargo.lock")
      expect(spec.required_ruby_version).to be_satisfied_by(Gem::Version.new(RUBY_VERSION))
      following = Gem::Version.new("#{api}.0").bump.to_s
      expect(spec.required_ruby_version).not_to be_satisfied_by(Gem::Version.new("#{following}.0"))

      env = { "GEM_HOME" => File.join(@dir, "home"), "PATH" => bare_path }
      gem_command("install", "--local", "--no-document", gem, env: env, chdir: @dir)
      expect(loaded_by_server(env: { "GEM_HOME" => env["GEM_HOME"] })).to include(end_with("/lib/fastrack/#{api}/#{name}"))
    end

    it "is compressed by zopfli where that is there, and no larger than 4 MB" do
      zopfli = File.join(@dir, "zopfli")
      File.write(zopfli, %(#!/bin/sh\ngzip --keep --no-name "$1" && echo "$1" >>"#{@dir}/compressed"\n))
      File.chmod(0o755, zopfli)
      allow(Gems).to receive(:tool).with("zopfli", missing: nil).and_return(zopfli)
      packer = Gems::PlatformGem.new(platform, native_files: [Struct.new(:api, :path).new(api, compiled)])
      gem = packer.pack(packer.specifications.first, @dir)
      # The description, the files, and their checksums.
      expect(File.readlines(File.join(@dir, "compressed")).size).to eq(3)
      expect { Gem::Package.new(gem).verify }.not_to raise_error
      expect(Gem::Package.new(gem).contents).to include("lib/fastrack/#{api}/#{name}", "lib/fastrack.rb")
      stub_const("Gems::PlatformGem::SIZE_LIMIT", File.size(gem) - 1)
      expect { packer.send(:within_limits, gem) }.to raise_error(/\.gem is too large: #{File.size(gem)} bytes/)
      zopfli.replace("false")
      expect { packer.pack(packer.specifications.first, @dir) }.to raise_error(/zopfli failed/)
    end

    it "is for a RubyGems that knows its libc, with a second gem for those that do not" do
      files = [Struct.new(:api, :path).new("3.1", compiled), Struct.new(:api, :path).new("4.0", compiled)]
      specs = %w[x86_64-linux-gnu aarch64-linux-musl arm64-darwin].flat_map do |one|
        Gems::PlatformGem.new(Gems.platform(one), native_files: files).specifications
      end

      expect(specs.map { |spec| [spec.platform.to_s, spec.required_rubygems_version.to_s] })
        .to eq([["x86_64-linux-gnu", ">= 3.3.22"], ["x86_64-linux", "< 3.3.22"], ["aarch64-linux-musl", ">= 3.3.22"], ["arm64-darwin", ">= 0"]])
      expect(Gems::PlatformGem.new(platform, native_files: files).lacking).to eq(%w[3.2 3.3 3.4])
      expect(specs.map(&:required_ruby_version)).to all(eq(Gem::Requirement.new(">= 3.1", "< 4.1.dev")))
    end

    it "is for all releases of the last Ruby that it has a file for, and not for what comes after it" do
      fits = lambda do |ruby, last|
        file = Struct.new(:api, :path).new(last, compiled)
        Gems::PlatformGem.new(platform, native_files: [file]).specifications.first.required_ruby_version.satisfied_by?(Gem::Version.new(ruby))
      end
      expect([fits.call("4.0.0", "4.0"), fits.call("4.0.6", "4.0"), fits.call("4.1.0.dev", "4.0")]).to eq([true, true, false])
      expect([fits.call("3.4.10", "3.4"), fits.call("4.0.0.dev", "3.4"), fits.call("4.0.0", "3.4")]).to eq([true, false, false])
    end

    it "takes no file that needs a newer glibc than the platform promises, or another processor" do
      skip "reads ELF" unless RUBY_PLATFORM.include?("linux")
      symbols = Gems::Symbols.new(compiled)
      own = Gems::Platform.new(platform.name, "any", glibc: symbols.glibc.to_s)
      other = Gems::Platform.new(platform.cpu == "x86_64" ? "aarch64-linux-gnu" : "x86_64-linux-gnu", "any", glibc: "2.4")

      # gcc links a library of its own, which zig does not.
      problems = ->(gem) { symbols.problems(gem) - ["needs libgcc_s.so.1"] }
      expect(problems.call(own)).to eq([])
      expect(problems.call(other)).to match([/\Ais for /, "needs glibc #{symbols.glibc}"])
    end

    it "takes no file for macOS that another processor, another library, a newer macOS or no signature makes useless" do
      require_relative "../support/mach_file"
      mac = Gems.platform("arm64-darwin")
      problems = lambda do |**facts|
        Gems::MachO.new(File.join(@dir, "file").tap { |path| File.binwrite(path, MachFile.new(**facts).bytes) }).problems(mac)
      end

      expect(problems.call).to eq([])
      expect(problems.call(cpu: 0x0100_0007)).to eq(["is for processor 0x1000007"])
      expect(problems.call(name: "/home/me/libfastrack.dylib")).to eq(["is called /home/me/libfastrack.dylib"])
      expect(problems.call(libraries: ["/usr/lib/libSystem.B.dylib", "/opt/homebrew/lib/libssl.dylib"])).to eq(["needs /opt/homebrew/lib/libssl.dylib"])
      expect(problems.call(macos: [13, 1])).to eq(["needs macOS 13.1.0"])
      expect(problems.call(looked_up: %w[_rb_eStandardError _epoll_wait])).to eq(["finds no library with _epoll_wait"])
      expect(problems.call(defined: "_Init_other")).to eq(["has no Init_fastrack"])
      expect(problems.call(damage: true)).to eq(["has no valid signature"])
      expect(Gems::MachO.new(compiled).problems(mac)).to eq(["is no 64-bit Mach-O file"]) unless RUBY_PLATFORM.include?("darwin")
    end

    it "takes headers from the folder that FASTRACK_HEADERS names, for Rubies and systems that are not here" do
      headers = File.join(@dir, "headers/arm64-darwin/3.2")
      FileUtils.mkdir_p(["#{headers}/include", "#{headers}/arch/ruby", "#{@dir}/headers/arm64-darwin/making-3.3"])
      File.write("#{headers}/include/ruby.h", "")
      File.write("#{headers}/arch/ruby/config.h", "")
      found = lambda do |folder|
        words = [RbConfig.ruby, "-r", "./bin/lib/gems/headers", "-e", 'p Gems::Headers.of(Gems.platform("arm64-darwin")).map { |one| one.environment["RBCONFIG_rubyarchhdrdir"] }']
        run(*words, env: { "FASTRACK_HEADERS" => folder, "FASTRACK_RUBIES" => nil, "XDG_CACHE_HOME" => @dir })
      end
      skip "this Ruby's own headers are found, too" if RUBY_PLATFORM.include?("darwin")
      expect(found.call(File.join(@dir, "headers"))).to eq("[\"#{headers}/arch\"]\n")
      expect(found.call(@dir)).to eq("[]\n")
    end

    it "says in one line that it does not fit, and what is missing to compile" do
      output, status = check_without_tools(unpacked("1.8": "", "1.9": ""))
      expect(output.lines.grep(/\Afastrack: /).join).to match(/\Afastrack: this gem has no compiled file for Ruby #{RUBY_VERSION} on #{RUBY_PLATFORM} \(it has 1\.8, 1\.9\)[^\n]*\bcargo[^\n]* is missing; install it with: [^\n]+\n\z/)
      expect(status.exitstatus).to eq(1)
    end

    { "has no file for this Ruby" => "1.8", "has a file that does not load here" => nil }.each do |case_name, version|
      # make stands in for what takes a minute: "installs from source" has the real one.
      it "is compiled at the first start, and not at the second, if it #{case_name}" do
        root = unpacked((version || api).to_sym => "of another system\n")
        FileUtils.mkdir_p(File.join(@dir, "make"))
        File.write(File.join(@dir, "make/make"), "#!/bin/sh\ngrep -q '^CARGO' Makefile && cp #{compiled} .\n", perm: 0o755)
        output, status = check(root, PATH: "#{@dir}/make:#{ENV.fetch("PATH")}")

        expect(output.lines.grep(/\Afastrack: /)).to match([/(?:no compiled file for Ruby #{RUBY_VERSION} .*|does not load here \(.+\)); compiling one/])
        expect([output.lines.last, status.exitstatus]).to eq(["app: loaded\n", 0])
        expect(FileUtils.compare_file(File.join(root, "lib/fastrack", api, name), compiled)).to be(true)
        expect(check_without_tools(root).first).not_to include("compiling")
      end
    end
  end

  describe "a release" do
    before { require_relative "../../bin/lib/gems/release" }

    it "is built and tried by the workflow for all platforms and Rubies that it is made of" do
      require "yaml"
      jobs = YAML.load_file(".github/workflows/gems.yml").fetch("jobs")
      matrix = ->(job) { jobs.dig(job, "strategy", "matrix") }
      platforms = Gems::PLATFORMS.map(&:name)
      expect(matrix.call("native")["include"].map { |one| one["platform"] }).to match_array(platforms)
      expect(jobs["native"]["steps"].filter_map { |step| step.dig("with", "ruby-version") }).to eq(Gems::PlatformGem::RUBIES)
      expect(%w[linux macos].map { |job| matrix.call(job)["ruby"] }).to all(eq(Gems::PlatformGem::RUBIES))
      tried = matrix.call("linux").values_at("machine", "system").then { |machines, systems| machines.product(systems) }
      expect(tried.map { |machine, system| "#{machine["cpu"]}-linux-#{system["libc"]}" } + matrix.call("macos")["machine"].map { |one| one["platform"] })
        .to match_array(platforms)
    end

    # The workflow's machines for Linux.
    it "is prepared where apt has another system's packages than Debian's: the headers are then those of the Rubies that are named" do
      tools = { "bin/apt-get" => "[ $1 = indextargets ] || exit 100\necho Ubuntu http://127.0.0.1:9/ubuntu/", "bin/rustup" => "echo #{Gems::PLATFORMS.map(&:rust_target).join(" ")} | xargs -n1",
                "fastrack/gems/tools/bin/cargo-zigbuild" => "exit 1", "fastrack/gems/tools/bin/zopfli" => "exit 1",
                "fastrack/gems/tools/python/ziglang/zig" => "exit 1" }
      tools.each do |file, text|
        FileUtils.mkdir_p(File.dirname(File.join(@dir, file)))
        File.write(File.join(@dir, file), "#!/bin/sh\n#{text}\n", perm: 0o755)
      end
      env = { "PATH" => "#{@dir}/bin:#{ENV.fetch("PATH")}", "XDG_CACHE_HOME" => @dir, "FASTRACK_DEBIAN_MIRROR" => nil, "RUBY" => RbConfig.ruby }
      expect(run("bash", "bin/lib/gems/setup.sh", "x86_64-linux-gnu", env: env)).to eq("setup.sh: no Debian packages here: Ruby's headers come from the Rubies that FASTRACK_RUBIES names\n")
      expect(run("bash", "bin/lib/gems/setup.sh", "arm64-darwin", env: env)).to include("no Debian packages here")
    end

    describe "with a Ruby that Debian has no packages of" do
      let(:sources) { FileUtils.mkdir_p(File.join(@dir, "sources")).first }
      let(:kept) { File.join(@dir, "cache/releases") }

      # Whatever this machine has of what it takes, and of a network.
      before do
        { "curl" => "echo curl: no network >&2; exit 6", "autoconf" => "exit 1", "bison" => "exit 1" }.each do |name, text|
          FileUtils.mkdir_p(File.join(@dir, "bin"))
          File.write(File.join(@dir, "bin", name), "#!/bin/sh\n#{text}\n", perm: 0o755)
        end
      end

      def get(source, before: "")
        script = "repo=$PWD; cache=$1; . bin/lib/common.sh; . bin/lib/gems/releases.sh; #{before} if get_release 3.2; then release 3.2; fi"
        run("bash", "-uc", script, "setup.sh", File.join(@dir, "cache"), env: { "FASTRACK_RUBY_SOURCE" => source, "PATH" => "#{@dir}/bin:#{ENV.fetch("PATH")}" })
      end

      it "takes its last release from the folder that FASTRACK_RUBY_SOURCE names" do
        %w[3.2.9.tar.gz 3.2.10.tar.xz 3.2.11-preview1.tar.gz 3.3.12.tar.gz].each { |name| File.write(File.join(sources, "ruby-#{name}"), name) }
        expect(get(sources)).to eq("#{kept}/ruby3.2_3.2.10.tar.xz\n")
        expect(Dir.children(kept)).to eq(["ruby3.2_3.2.10.tar.xz"])
        expect(get(nil)).to eq("#{kept}/ruby3.2_3.2.10.tar.xz\n")
      end

      it "takes the last one that a git repository has a tag of, and makes its configure" do
        File.write(File.join(sources, "autogen.sh"), "#!/bin/sh\n[ $1 = --install ] && cp version configure\n", perm: 0o755)
        git = ["git", "-c", "user.name=one", "-c", "user.email=one@example.com", "-C", sources]
        run(*git, "init", "-q")
        %w[v3_2_9 v3_2_10 v3_2_11_rc1 v3_3_12].each do |tag|
          File.write(File.join(sources, "version"), "#{tag}\n")
          run(*git, "add", "-A")
          run(*git, "commit", "-q", "-m", tag)
          run(*git, "tag", tag)
        end
        expect(get(File.join(sources, ".git"))).to eq("setup.sh: Ruby 3.2.10 from git\n#{kept}/ruby3.2_3.2.10.tar.gz\n")
        expect(run("tar", "-xzOf", "#{kept}/ruby3.2_3.2.10.tar.gz", "ruby-3.2.10/configure")).to eq("v3_2_10\n")
      end

      it "takes what it fetches only if it has the checksum that was published" do
        File.write(File.join(@dir, "bin/curl"), %(#!/bin/sh\nwhile [ "$1" != --output ]; do shift; done\nprintf release >"$2"\n), perm: 0o755)
        sum = Digest::SHA256.hexdigest("release")
        expect(get(nil).lines.drop(1)).to match([/\Asetup\.sh: what came is not Ruby 3\.2\.\d+ as its authors .*: its SHA-256 is #{sum}, not \h{64}\n\z/, "setup.sh: no source of Ruby 3.2: without it\n"])
        expect(Dir.children(kept)).to eq([])
        expect(get(nil, before: "newest() { echo 3.2.99 #{sum}; };").lines.last).to eq("#{kept}/ruby3.2_3.2.99.tar.gz\n")
      end

      it "says in a line that it goes without where there is none, and leaves nothing" do
        expect(get(sources)).to eq("setup.sh: no source of Ruby 3.2 in #{sources}: without it\n")
        expect(get(nil).lines.last).to eq("setup.sh: no source of Ruby 3.2: without it\n")
        expect(Dir.children(kept)).to eq([])
      end
    end

    describe "that a bare system is built of" do
      let(:root) { File.join(@dir, "ruby4.0.making") }

      # A release whose configure lasts, and what this machine is said to have to build it.
      def build_root(packages: " installed")
        FileUtils.mkdir_p(["#{@dir}/ruby-4.0.9", "#{@dir}/bin"])
        File.write("#{@dir}/ruby-4.0.9/configure", "#!/bin/sh\necho $$ >#{@dir}/pid.new && mv #{@dir}/pid.new #{@dir}/pid\nsleep 600\n", perm: 0o755)
        File.write("#{@dir}/bin/dpkg-query", "#!/bin/sh\ncase $* in *libyaml-dev*) echo '#{packages}' ;; *) echo 'ok installed' ;; esac\n", perm: 0o755)
        run("tar", "-czf", "release.tar.gz", "ruby-4.0.9", chdir: @dir)
        spawn({ "PATH" => "#{@dir}/bin:#{ENV.fetch("PATH")}", "RUBY" => RbConfig.ruby }, "bash", "bin/lib/gems/built_root.sh",
              "#{@dir}/release.tar.gz", "#{@dir}/cache", root, %i[out err] => "#{@dir}/log")
      end

      %w[TERM INT].each do |signal|
        it "leaves nothing and runs nothing any more when #{signal} ends it" do
          script = build_root
          eventually { File.exist?("#{@dir}/pid") }
          configure = Integer(File.read("#{@dir}/pid"))
          Process.kill(signal, script)
          _, status = eventually { Process.wait2(script, Process::WNOHANG) }
          script = nil
          expect([status.success?, Dir.glob("#{root}*")]).to eq([false, []])
          eventually { !Dir.exist?("/proc/#{configure}") }
        ensure
          Process.kill(:KILL, script) && Process.wait(script) if script
          Process.kill(:KILL, configure) if configure && Dir.exist?("/proc/#{configure}")
        end
      end

      it "says in one line which packages are missing" do
        _, status = Process.wait2(build_root(packages: "unknown"))
        expect([status.exitstatus, File.read("#{@dir}/log")]).to eq([1, "built_root.sh: missing; run: apt-get install libyaml-dev\n"])
        expect(Dir.glob("#{root}*")).to eq([])
      end
    end

    describe "that is made", once: "a tool" do
      let(:release) { Gems::Release.new(@dir) }
      let(:sums) { File.join(@dir, "SHA256SUMS") }

      # Of what is compiled here already. The source gem is there, too, and not compiled once more.
      before do
        file = Struct.new(:api, :path).new(RUBY_VERSION[/\A\d+\.\d+/], "#{Server::LIB}/fastrack/#{RUBY_VERSION[/\A\d+\.\d+/]}/fastrack.#{RbConfig::CONFIG["DLEXT"]}")
        platforms = [Gems::PLATFORMS.find(&:here?), Gems::PLATFORMS.find { |one| one.darwin? && !one.here? }]
        allow(Gems::PlatformGem).to receive(:build_all) do |folder|
          platforms.map { |one| Gems::PlatformGem.new(one, native_files: [file]) }.flat_map { |gem| gem.specifications.map { |spec| gem.pack(spec, folder) } }
        end
        # Whether they are small is not the question here.
        allow(Gems).to receive(:tool).and_wrap_original { |tool, name, **rest| tool.call(name, **rest) unless name == "zopfli" }
        allow(release).to receive(:run).and_wrap_original { |run, *words| run.call(*words) unless words.grep(/-[\d.]+\.gem\z/).any? }
      end

      it "has had each gem tried that can run here, says which could not, and has the checksums of all" do
        File.write(File.join(@dir, "rhebok-rs-0.0.1.gem"), "of an older version")
        expect { release.make }.to output(/^smoke: .*: served$.*-darwin\.gem: not run, that takes a Mac/m).to_stdout_from_any_process
        gems = Dir.glob("*.gem", base: @dir)
        expect(gems.grep(/darwin/).size).to eq(1)
        expect(gems).not_to include("rhebok-rs-0.0.1.gem")
        expect(gems).to include("rhebok-rs-#{Gem::Specification.load("rhebok-rs.gemspec").version}.gem")
        expect(run("sha256sum", "--check", "SHA256SUMS", chdir: @dir).lines(chomp: true)).to match_array(gems.map { |gem| "#{gem}: OK" })
      end

      it "is none if a gem does not serve" do
        stub_const("Gems::Release::APPS", ["examples/hello/config.ru=another page"])
        expect { release.make }.to raise_error(/smoke\.rb .* failed\z/).and output.to_stdout_from_any_process.and output(/the page has no another page/).to_stderr_from_any_process
        expect(File.exist?(sums)).to be(false)
      end
    end

    it "is not published while the gemspec names a place that is none of the repository's" do
      release = Gems::Release.new(@dir)
      homepage = Gem::Specification.load("rhebok-rs.gemspec").homepage
      _, host, path = *homepage.match(%r{\Ahttps://([^/]+)/(.+)\z})
      ["#{homepage}", "#{homepage}.git", "git@#{host}:#{path}.git", "ssh://git@#{host}/#{path}"].each do |url|
        expect(release.homepage_problem("origin\t#{url} (fetch)\n")).to be_nil, url
      end
      ["/srv/git/fastrack", "#{homepage}-fork", "https://elsewhere.example/#{path}", "https://x#{host}/#{path}"].each do |url|
        expect(release.homepage_problem("origin\t#{url} (fetch)\n")).to start_with("the gemspec's homepage is #{homepage}, which is no remote"), url
      end
    end

    it "is not published unless its checksums are right and all platforms' gems are there" do
      package = File.join(@dir, "rhebok-rs-#{File.read("lib/fastrack/version.rb")[/VERSION = "(.+)"/, 1]}.gem")
      gem_command("build", "rhebok-rs.gemspec", "--output", package)
      release = Gems::Release.new(@dir)
      sum = "#{Digest::SHA256.file(package).hexdigest}  #{File.basename(package)}\n"
      File.write(File.join(@dir, "SHA256SUMS"), sum)
      expect { release.publish }.to raise_error(/\Anothing is published: there is no rhebok-rs-[\d.]+-x86_64-linux-gnu\.gem; /)

      File.write(File.join(@dir, "SHA256SUMS"), sum.sub(/\A./) { |digit| digit == "0" ? "1" : "0" })
      expect { release.publish }.to raise_error(/\Asha256sum .* failed\z/).and output(/FAILED/).to_stdout_from_any_process.and output.to_stderr_from_any_process
    end
  end
end
