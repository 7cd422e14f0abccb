# frozen_string_literal: true

require_relative "lib/fastrack/version"

Gem::Specification.new do |spec|
  spec.name = "rhebok-rs"
  spec.version = Fastrack::VERSION
  spec.authors = ["The Fastrack authors"]
  spec.summary = "Fastrack, a fast prefork Rack web server: a drop-in for Rhebok, written in Rust"
  spec.description = "Fastrack (rackup -s Fastrack) serves Rack applications from preforked worker processes whose " \
                     "request path is a native extension in Rust. It takes Rhebok's options and configuration files."
  spec.license = "MIT"

  spec.required_ruby_version = ">= 3.1"

  # Where the repository is published. Until there is a release, the README's line for the Gemfile says so, too.
  forge = "https://github.com/fastrack-rb/fastrack"
  spec.homepage = forge
  spec.metadata = {
    "source_code_uri" => "#{forge}/tree/v#{spec.version}",
    "changelog_uri" => "#{forge}/blob/v#{spec.version}/CHANGELOG.md",
    "documentation_uri" => "#{forge}/tree/v#{spec.version}/docs",
    "bug_tracker_uri" => "#{forge}/issues",
    "rubygems_mfa_required" => "true"
  }

  # Of the benchmark's reports the picture that README.md shows: all of them take 12 KB of a gem's 7 MB.
  # No git: a gem is also built from an unpacked archive, and a Gemfile's path: line may name one.
  spec.files = Dir.glob(
    %w[LICENSE README.md SECURITY.md CHANGELOG.md Cargo.toml Cargo.lock
       crates/**/*.{rs,toml} crates/*/src/*.{md,html} ext/**/*.{rs,rb,toml} lib/**/*.rb exe/* sig/*.rbs man/*.1 completions/* docs/*.md
       docs/benchmark/{,rails-page/}rack3.{svg,md} examples/**/*],
    base: __dir__
  ).grep_v(%r{/target/|/tmp/|/log/|\Acrates/[^/]+/(?:tests|examples|fuzz)/|/tests(?:\.rs|/)}).select { |file| File.file?(File.join(__dir__, file)) }.sort
  spec.extra_rdoc_files = spec.files.grep(/\A[A-Z]+\.md\z/)
  spec.require_paths = ["lib"]
  spec.bindir = "exe"
  spec.executables = ["fastrack"]
  spec.extensions = ["ext/fastrack/extconf.rb", "ext/proxy/extconf.rb"]

  # The rackup command of Rack 3 is a gem of its own, and only those who use it need it.
  spec.add_dependency "rack", ">= 2.2", "< 4"
end
