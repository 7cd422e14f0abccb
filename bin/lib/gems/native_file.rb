# frozen_string_literal: true

require "digest"
require "fileutils"
require "shellwords"
require_relative "headers"

module Gems
  # Compiles the extension for one platform and one Ruby.
  class NativeFile
    ROOT = File.expand_path("../../..", __dir__)
    TARGET = File.join(ROOT, "target/gems")

    # All that it is compiled from.
    SOURCES = %w[Cargo.toml Cargo.lock crates/*/{Cargo.toml,src/**/*.{rs,html}} ext/fastrack/{Cargo.toml,src/**/*.rs}].freeze

    # @return [Array<NativeFile>] one for each Ruby whose headers are here
    def self.of(platform)
      Headers.of(platform).map { |headers| new(platform, headers) }
    end

    def initialize(platform, headers)
      @platform = platform
      @headers = headers
    end

    # @return [String] the version of Ruby's API that it is for
    def api
      @headers.api
    end

    # Where it is once it is built.
    def path
      File.join(TARGET, "native", @platform.name, api, @platform.native_file)
    end

    # The dependencies that do not know Ruby are compiled once for all Rubies. All the rest is compiled anew, because cargo keeps
    # one result for each platform: so it is run only when something has changed.
    def build
      return path if File.exist?(path) && File.exist?(note) && File.read(note) == key

      system(environment, *command, chdir: ROOT) || raise("#{command.shelljoin} failed for Ruby #{api} on #{@platform.name}")
      FileUtils.mkdir_p(File.dirname(path))
      FileUtils.install(File.join(TARGET, @platform.rust_target, made), path, mode: 0o755)
      File.write(note, key)
      path
    end

    private

    def command
      [*cargo, "--release", "--locked", "--lib", "-p", "fastrack", "--target-dir", TARGET]
    end

    # Where cargo puts it, below the target's folder.
    def made
      "release/#{@platform.library}"
    end

    # A checksum of its sources is beside the file.
    def note
      "#{path}.built_from"
    end

    def key
      @key ||= Digest::SHA256.hexdigest(Marshal.dump([sources, command, environment.sort_by(&:first), `rustc --version`]))
    end

    def sources
      Dir.glob(SOURCES, base: ROOT).sort.map { |file| [file, Digest::SHA256.file(File.join(ROOT, file)).hexdigest] }
    end

    # macOS' own linker is what there is on a Mac; from elsewhere, and for all of Linux, zig links.
    def cargo
      return ["cargo", "build", "--target", @platform.rust_target] if @platform.darwin? && RUBY_PLATFORM.include?("darwin")

      [Gems.tool("cargo-zigbuild"), "zigbuild", "--target", @platform.zig_target]
    end

    def environment
      @headers.environment.merge(
        "RUBY" => RbConfig.ruby, "CARGO_ZIGBUILD_ZIG_PATH" => Gems.tool("zig", missing: nil),
        # A twelfth of the file, which a checkout's keeps for profilers.
        "CARGO_PROFILE_RELEASE_STRIP" => "symbols",
        # RUSTFLAGS would be split at spaces, which paths may have.
        "RUSTFLAGS" => nil, "CARGO_ENCODED_RUSTFLAGS" => rust_flags.join("\x1F")
      )
    end

    def rust_flags
      # A gem does not depend on where it was built.
      flags = ["--remap-path-prefix=#{ROOT}=fastrack", "--remap-path-prefix=#{cargo_home}=cargo"]
      # A file that Ruby loads uses Ruby's libc.
      flags << "-Ctarget-feature=-crt-static" if @platform.musl?
      # Ruby's symbols are resolved when Ruby loads the file. ELF's linkers need no option for that.
      # Its own name would be the place where it was built; and Rust's standard library has it link to what it does not use.
      words = %W[-undefined,dynamic_lookup -install_name,#{@platform.native_file} -dead_strip_dylibs]
      flags += words.map { |word| "-Clink-arg=-Wl,#{word}" } if @platform.darwin?
      flags
    end

    def cargo_home
      ENV.fetch("CARGO_HOME") { File.join(Dir.home, ".cargo") }
    end
  end

  # Compiles the proxy's program for one platform. It knows no Ruby.
  class ProgramFile < NativeFile
    # Of the headers there is only an empty environment.
    NO_HEADERS = Struct.new(:environment).new({}.freeze)

    def initialize(platform)
      super(platform, NO_HEADERS)
    end

    def path
      File.join(TARGET, "native", @platform.name, "fastrack-proxy")
    end

    # @return [String] where it is in a gem
    def feature
      "lib/fastrack/fastrack-proxy"
    end

    private

    def command
      [*cargo, "--profile", "proxy", "--locked", "-p", "fastrack-proxy", "--target-dir", TARGET]
    end

    def made
      "proxy/fastrack-proxy"
    end

    # It brings its own libc for musl, and asks Ruby for no symbols.
    def rust_flags
      ["--remap-path-prefix=#{ROOT}=fastrack", "--remap-path-prefix=#{cargo_home}=cargo"]
    end
  end

  # @return [String] the path of a program that setup.sh has installed, or that is on the PATH
  def self.tool(name, missing: "#{name} is missing; run: rake native:setup")
    places = [*Dir.glob("#{cache}/tools/{bin,python/ziglang}/#{name}"), *ENV.fetch("PATH").split(":").map { |dir| File.join(dir, name) }]
    places.find { |file| File.file?(file) && File.executable?(file) } || (missing && raise(missing))
  end
end
