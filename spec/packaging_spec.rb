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
    expect(spec.runtime_dependencies.map { |one| [one.name, one.requirement.to_s] }).to eq([["rack", ">= 2.2"]])
    expect(spec.files).to include("Cargo.toml", "Cargo.lock", "LICENSE", "ext/fastrack/extconf.rb",
                                  "ext/fastrack/build/toolchain.rb", "ext/fastrack/src/lib.rs",
                                  "crates/http/src/lib.rs", "crates/sys/src/lib.rs", "crates/engine/src/lib.rs",
                                  "lib/rhebok-rs.rb", "lib/rack/handler/fastrack.rb", "exe/fastrack")
    expect(spec.executables).to eq(["fastrack"])
    expect(spec.files.grep(%r{\.(?:so|bundle|o)\z|/target/|\Aspec/|\Abin/})).to be_empty
  end

  # A compilation of its own: half a minute and more.
  it "installs from source into an empty GEM_HOME, and serves from another directory" do
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
end
