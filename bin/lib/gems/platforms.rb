# frozen_string_literal: true

module Gems
  # A platform that there is a gem with compiled files for: its name as RubyGems and rake-compiler-dock call it, its target as rustc does,
  # the oldest glibc and macOS that its files run with, and Debian's name of the architecture, whose packages have Ruby's headers.
  Platform = Struct.new(:name, :rust_target, :glibc, :debian, :macos)

  class Platform
    # The first RubyGems that tells one libc from another.
    LIBC_AWARE = "3.3.22"

    def initialize(name, rust_target, glibc: nil, debian: nil, macos: nil) = super(name, rust_target, glibc, debian, macos)

    def cpu = name[/\A[^-]+/]

    # @return [String] `linux` or `darwin`
    def os = name.split("-")[1]

    def musl? = name.end_with?("-musl")

    def darwin? = os == "darwin"

    # @return [String] what cargo-zigbuild calls the target
    def zig_target = glibc ? "#{rust_target}.#{glibc}" : rust_target

    # @return [String] what cargo calls the library that it has built
    def library = darwin? ? "libfastrack.dylib" : "libfastrack.so"

    # @return [String] what Ruby loads
    def native_file = darwin? ? "fastrack.bundle" : "fastrack.so"

    # Names of its gems. RubyGems before 3.3.22, such as Debian bookworm's, cannot install one whose name ends with a
    # libc's: for them there is a second one with the same files.
    #
    # @return [Hash{String => String, nil}] names, and the versions of RubyGems that they are for
    def gem_names
      return { name => nil } if darwin?

      names = { name => ">= #{LIBC_AWARE}" }
      glibc ? names.merge(name.delete_suffix("-gnu") => "< #{LIBC_AWARE}") : names
    end

    # @return [Boolean] whether the Ruby that runs this file is of this platform
    def here?
      here = RbConfig::CONFIG.values_at("host_cpu", "host_os")
      cpu == here.first.sub(/\Aaarch64\z/, cpu) && here.last.start_with?(os) && musl? == here.last.include?("musl")
    end
  end

  PLATFORMS = [
    Platform.new("x86_64-linux-gnu", "x86_64-unknown-linux-gnu", glibc: "2.17", debian: "amd64"),
    Platform.new("aarch64-linux-gnu", "aarch64-unknown-linux-gnu", glibc: "2.17", debian: "arm64"),
    Platform.new("x86_64-linux-musl", "x86_64-unknown-linux-musl", debian: "amd64"),
    Platform.new("aarch64-linux-musl", "aarch64-unknown-linux-musl", debian: "arm64"),
    Platform.new("arm64-darwin", "aarch64-apple-darwin", macos: "11.7.1"),
    Platform.new("x86_64-darwin", "x86_64-apple-darwin", macos: "11.7.1")
  ].freeze

  # @raise [RuntimeError] if there is none of this name
  def self.platform(name)
    PLATFORMS.find { |one| one.name == name } ||
      raise("no such platform: #{name} (#{PLATFORMS.map(&:name).join(", ")} are there)")
  end

  # The folder of everything that was fetched or built to make gems.
  def self.cache
    base = ENV.fetch("XDG_CACHE_HOME") { File.join(Dir.home, ".cache") }
    File.join(base, "fastrack", "gems")
  end
end
