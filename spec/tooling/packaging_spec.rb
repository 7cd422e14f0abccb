# frozen_string_literal: true

require "rubygems/package"
require_relative "../support/mach_file"
require_relative "../../bin/lib/gems/release"

# The gem as its users get it: from source, as a line in a Gemfile, and compiled for their platform.
RSpec.describe "packaging" do
  include Folder

  # A server that sees none of the checkout's lib/, as an application's own directory would have it.
  let(:server_class) do
    Class.new(Server) do
      private

      def rackup_command(*) = super.tap { |words| words.slice!(words.index("-I"), 2) }
    end
  end

  let(:app) { <<~RUBY }
    run(lambda do |_env|
      loaded = $LOADED_FEATURES.grep(%r{/fastrack/version\\.rb|/fastrack\\.(?:so|bundle)\\z})
      [200, { "content-type" => "text/plain" }, [loaded.sort.join("\\n")]]
    end)
  RUBY

  let(:package) { File.join(@dir, "rhebok-rs.gem") }
  let(:name) { "fastrack.#{RbConfig::CONFIG["DLEXT"]}" }
  let(:api) { RUBY_VERSION[/\A\d+\.\d+/] }
  let(:compiled) { File.join(Server::LIB, "fastrack", api, name) }
  let(:platform) { Gems::PLATFORMS.find(&:here?) }

  # Commands of this example are those of an application: neither this checkout nor Bundler is in their environment.
  def run(*command, env: {}, chdir: Server::ROOT)
    clean = { "RUBYOPT" => nil, "RUBYLIB" => nil, "BUNDLE_GEMFILE" => nil }
    output, status = Open3.capture2e(clean.merge(env), *command, chdir: chdir, stdin_data: "")
    raise "#{command.join(" ")} ended with #{status.exitstatus}:\n#{output}" unless status.success?

    output
  end

  def gem_command(*arguments, **keywords) = run(RbConfig.ruby, "-S", "gem", *arguments, **keywords)

  def build
    gem_command("build", "rhebok-rs.gemspec", "--output", package)
    Gem::Package.new(package).spec
  end

  # Serves the app and gives the features of Fastrack that it has loaded.
  def loaded_by_server(**keywords)
    server = server_class.new(ru: app, options: { "MaxWorkers" => 1 }, **keywords)
    server.await_listening
    response = server.get
    raise "status #{response.status}: #{server.log}" unless response.status == 200

    response.body.lines(chomp: true)
  ensure
    problems = server&.finish.to_a
    raise problems.join("\n") unless problems.empty?
  end

  # A platform's gem with these compiled files.
  def packer(platform, *apis)
    file = Struct.new(:api, :path)
    program = Struct.new(:path, :feature).new(compiled, "lib/fastrack/fastrack-proxy")
    Gems::PlatformGem.new(platform, native_files: apis.map { |one| file.new(one, compiled) }, program: program)
  end

  it "builds a gem with all that compiling it takes and its pages show, and nothing that was compiled", once: "what is in the gem" do
    spec = build
    expect([spec.name, spec.version.to_s, spec.licenses, spec.executables])
      .to eq(["rhebok-rs", File.read("lib/fastrack/version.rb")[/VERSION = "(.+)"/, 1], ["MIT"], ["fastrack"]])
    expect(spec.required_ruby_version).to be_satisfied_by(Gem::Version.new("3.1.0"))
    expect(spec.runtime_dependencies.map { |one| [one.name, one.requirement] }).to eq([["rack", Gem::Requirement.new(">= 2.2", "< 4")]])
    expect(spec.files).to include("Cargo.toml", "Cargo.lock", "LICENSE", "ext/fastrack/extconf.rb", "ext/fastrack/build/toolchain.rb",
                                  "ext/fastrack/build/fallback.rb", "ext/proxy/extconf.rb", "crates/proxy/src/main.rs", "ext/fastrack/src/lib.rs", "crates/http/src/lib.rs", "crates/sys/src/lib.rs",
                                  "crates/engine/src/lib.rs", "lib/rhebok-rs.rb", "lib/rack/handler/fastrack.rb", "exe/fastrack")
    expect(spec.files.grep(%r{\.(?:so|bundle|o)\z|/target/|\Aspec/|\Abin/|\Acrates/[^/]+/(?:tests|examples|fuzz)/|/tests(?:\.rs|/)})).to be_empty
    expect(spec.files).to include(*File.read("README.md").scan(/\]\(((?:docs|examples)\/[^)#]+)/).flatten.uniq)
    pictures = spec.files.grep(/\.md\z/).flat_map { |page| File.read(page).scan(/!\[[^\]]*\]\(([^):]+)\)/).map { |one,| File.join(File.dirname(page), one).delete_prefix("./") } }
    expect(spec.files).to include(*pictures)
  end

  # Half a minute and more. By the gem's own Makefile where there is no rb_sys, and by rb_sys' elsewhere.
  it "installs from source into an empty GEM_HOME, and serves from another directory", packaging: "compiles the extension", alone: "cargo takes all processors" do
    skip "compiled in the other lanes, which take less time" if ENV["FASTRACK_LANE"] == "rack3"
    env = { "GEM_HOME" => File.join(@dir, "home") }
    build
    gem_command("install", "--local", "--no-document", package, env: env, chdir: @dir)
    expect(loaded_by_server(env: env)).to contain_exactly(
      start_with("#{@dir}/home/").and(end_with("/lib/fastrack/version.rb")), start_with("#{@dir}/home/").and(end_with("/fastrack/#{name}"))
    )
    expect(Dir.glob("#{@dir}/home/gems/*/**/target")).to be_empty
    expect(run("#{@dir}/home/bin/fastrack", "--version", env: env, chdir: @dir)).to start_with("Fastrack ")
  end

  it "works as a path: line in an application's Gemfile" do
    gemfile = File.join(@dir, "Gemfile")
    File.write(gemfile, %(gem "rhebok-rs", path: "#{Server::ROOT}"\n#{%(gem "rackup"\n) if Gem.find_files("rackup.rb").any?}))
    env = { "BUNDLE_GEMFILE" => gemfile, "HOME" => @dir }
    run(RbConfig.ruby, "-S", "bundle", "install", "--local", env: env, chdir: @dir)
    expect(loaded_by_server(env: env, wrapper: [RbConfig.ruby, "-S", "bundle", "exec"])).to all(start_with(Server::LIB))
  end

  describe "a platform's gem where it is installed" do
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

    def check_without_tools(root) = check(root, PATH: bare_path, HOME: @dir, CARGO: nil, CARGO_HOME: nil)

    it "serves where there is nothing to compile with, and is not for Rubies that it has no file for" do
      own = packer(platform, api)
      gem = own.pack(own.specifications.find { |one| one.required_rubygems_version.satisfied_by?(Gem.rubygems_version) }, @dir)
      spec = Gem::Package.new(gem).spec
      expect(spec.extensions).to eq([])
      expect(spec.files).to include("lib/fastrack/#{api}/#{name}", "ext/fastrack/extconf.rb", "Cargo.lock")
      expect(spec.required_ruby_version).to be_satisfied_by(Gem::Version.new(RUBY_VERSION))
      expect(spec.required_ruby_version).not_to be_satisfied_by(Gem::Version.new("#{api}.0").bump)
      env = { "GEM_HOME" => File.join(@dir, "home") }
      gem_command("install", "--local", "--no-document", gem, env: env.merge("PATH" => bare_path), chdir: @dir)
      expect(loaded_by_server(env: env)).to include(end_with("/lib/fastrack/#{api}/#{name}"))
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
        expect(check_without_tools(root).first).not_to include("compiling")
      end
    end
  end

  describe "a platform's gem before it is published", once: "compiled files, and what a gem says of them" do
    it "is for RubyGems that know its libc, and for the Rubies that it has files for" do
      specs = %w[x86_64-linux-gnu aarch64-linux-musl arm64-darwin].flat_map { |one| packer(Gems.platform(one), "3.1", "4.0").specifications }
      expect(specs.map { |spec| [spec.platform.to_s, spec.required_rubygems_version.to_s] })
        .to eq([["x86_64-linux-gnu", ">= 3.3.22"], ["x86_64-linux", "< 3.3.22"], ["aarch64-linux-musl", ">= 3.3.22"], ["arm64-darwin", ">= 0"]])
      expect(packer(platform, "3.1", "4.0").lacking).to eq(%w[3.2 3.3 3.4])
      { "4.0" => { "4.0.6" => true, "4.1.0.dev" => false }, "3.4" => { "3.4.10" => true, "4.0.0.dev" => false } }.each do |last, fits|
        wanted = packer(platform, last).specifications.first.required_ruby_version
        expect(fits.to_h { |ruby, _| [ruby, wanted.satisfied_by?(Gem::Version.new(ruby))] }).to eq(fits)
      end
    end

    it "has its size told, with the files of the other Rubies, and is not built beyond the limit" do
      part = Struct.new(:path, :api, :feature) { alias_method :build, :path }
      gem = Gems::PlatformGem.new(Gems.platform("x86_64-linux-musl"), native_files: [part.new(compiled, "3.3")], program: part.new(compiled, nil, "lib/fastrack/fastrack-proxy"))
      allow(Gems::Symbols).to receive(:new).and_return(instance_double(Gems::Symbols, problems: []))
      allow(Gems).to receive(:tool).and_return(nil)
      one = Zlib.gzip(File.binread(compiled), level: 9).bytesize / 1e6
      told = nil
      expect { gem.build(@dir) }.to output(satisfy { |text| told = text }).to_stdout
      size, proxy, file, full = told.scan(/[\d.]+(?= MB)/).map(&:to_f)
      expect([proxy, file, full]).to match([be_within(0.01).of(one), be_within(0.01).of(one), be_within(0.03).of(size + (4 * one))])
      stub_const("Gems::PlatformGem::SIZE_LIMIT", (size * 1e6).to_i + 100_000)
      expect { gem.build(@dir) }.to raise_error(/is too large: more than/).and output.to_stdout
    end

    it "takes no file that needs a newer glibc than the platform promises, or another processor" do
      skip "reads ELF" unless RUBY_PLATFORM.include?("linux")
      symbols = Gems::Symbols.new(compiled)
      # gcc links a library of its own, which zig does not.
      problems = ->(*gem, glibc) { symbols.problems(Gems::Platform.new(*gem, "any", glibc: glibc)) - ["needs libgcc_s.so.1"] }
      expect(problems.call(platform.name, symbols.glibc.to_s)).to eq([])
      expect(problems.call(platform.name, "2.4")).to eq(["needs glibc #{symbols.glibc}"])
      expect(Gems::Symbols.new(RbConfig.ruby).problems(Gems::Platform.new(platform.name, "any", glibc: "2.4"), program: true)).to include(/\Aneeds glibc/)
      expect(problems.call(platform.cpu == "x86_64" ? "aarch64-linux-gnu" : "x86_64-linux-gnu", symbols.glibc.to_s)).to match([/\Ais for /])
    end

    it "takes no file for macOS that could not be loaded there" do
      skip "there is no llvm-objdump" unless Gems::MachO.readable?
      { {} => [], { cpu: 0x0100_0007 } => ["is for processor X86_64"], { name: "/home/me/libfastrack.dylib" } => ["is called /home/me/libfastrack.dylib"],
        { libraries: ["/usr/lib/libSystem.B.dylib", "/opt/homebrew/lib/libssl.dylib"] } => ["needs /opt/homebrew/lib/libssl.dylib"],
        { macos: [13, 1] } => ["needs macOS 13.1"], { looked_up: %w[_rb_eStandardError _epoll_wait] } => ["finds no library with _epoll_wait"],
        { defined: "_Init_other" } => ["has no Init_fastrack"], { signed: false } => ["has no signature"] }.each do |facts, problems|
        File.binwrite(path = File.join(@dir, "file"), MachFile.new(**facts).bytes)
        expect(Gems::MachO.new(path).problems(Gems.platform("arm64-darwin"))).to eq(problems)
      end
    end
  end

  describe "a release", once: "gems and their checksums" do
    let(:release) { Gems::Release.new(@dir) }

    # Of what is compiled here already. The source gem is there, too, and not compiled once more.
    before do
      allow(Gems::PlatformGem).to receive(:build_all) do |folder|
        gems = [platform, Gems::PLATFORMS.find { |one| one.darwin? && !one.here? }].map { |one| packer(one, api) }
        gems.flat_map { |gem| gem.specifications.map { |spec| gem.pack(spec, folder) } }
      end
      # Whether they are small is not the question here.
      allow(Gems).to receive(:tool).and_wrap_original { |tool, name, **rest| tool.call(name, **rest) unless name == "zopfli" }
      allow(release).to receive(:run).and_wrap_original { |run, *words, **rest| run.call(*words, **rest) unless words.grep(/-[\d.]+\.gem\z/).any? }
    end

    it "has had each gem tried that can run here and has the checksums of all, without which nothing is published" do
      File.write(File.join(@dir, "rhebok-rs-0.0.1.gem"), "of an older version")
      expect { release.make }.to output(/^smoke: .*: served$.*-darwin\.gem: not run: it is for another system/m).to_stdout_from_any_process
      gems = Dir.glob("*.gem", base: @dir)
      expect(gems).to include("rhebok-rs-#{Gem::Specification.load("rhebok-rs.gemspec").version}.gem").and satisfy { |all| !all.include?("rhebok-rs-0.0.1.gem") }
      expect(run("sha256sum", "--check", "SHA256SUMS", chdir: @dir).lines(chomp: true)).to match_array(gems.map { |gem| "#{gem}: OK" })
      # Not all Rubies have a file in these gems, and not all platforms have one of the gems.
      expect { release.publish }.to raise_error(/\Anothing is published: .*-#{platform.name}\.gem has no lib\/fastrack.*there is no /)
      File.write(File.join(@dir, gems.first), "damaged", mode: "a")
      expect { release.publish }.to raise_error(/\Asha256sum .* failed\z/).and output(/FAILED/).to_stdout_from_any_process.and output.to_stderr_from_any_process
    end
  end
end
