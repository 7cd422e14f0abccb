# frozen_string_literal: true

# Prints as shell assignments what bin/'s scripts have to know about this Ruby: facts.rb FEATURE...

require "digest"
require "shellwords"
require_relative "../../ext/fastrack/build/toolchain"

# Facts about the Ruby that runs this file.
module Facts
  ROOT = File.expand_path("../..", __dir__)

  # All that the native extension is compiled from.
  SOURCES = %w[Cargo.toml Cargo.lock crates/**/*.{rs,toml} ext/**/*.{rs,rb,toml}].freeze

  # Rack 2 has its own rackup, for Rack 3 it is a gem.
  ALTERNATIVES = { "rackup" => ["rackup.rb", "rack/server.rb"] }.freeze

  module_function

  def all(features)
    {
      ruby_version: RUBY_VERSION, ruby_api: RUBY_VERSION[/\A\d+\.\d+/], ruby_program: RbConfig.ruby,
      ruby_fits: Gem::Version.new(RUBY_VERSION) >= Gem::Version.new("3.1"),
      ruby_headers: File.exist?(File.join(RbConfig::CONFIG["rubyhdrdir"], "ruby.h")),
      platform: platform, system: system_name, build_key: build_key,
      dlext: RbConfig::CONFIG["DLEXT"],
      libclang: ENV.key?("LIBCLANG_PATH") || Toolchain.libclang_installed?,
      cargo: Toolchain.find_cargo,
      missing_gems: features.reject { |feature| gem_there?(feature) }.join(" ")
    }
  end

  # Names what a binary is for, features included. The system's release is a part of it: one checkout may be seen by several (a lane's root,
  # a container), and a binary of the newer one need not load in the older.
  def platform
    [RUBY_VERSION, system_name, *Toolchain.features].join("-")
  end

  # The platform and the release of the system, without the version of Ruby.
  def system_name
    release = File.exist?("/etc/os-release") ? File.read("/etc/os-release") : ""
    [RUBY_PLATFORM, release[/^ID="?([^"\n]+)/, 1], release[/^VERSION_ID="?([^"\n]+)/, 1]].compact.join("-")
  end

  # Changes when the extension has to be compiled again: times would not do, a checkout sets them as it likes.
  def build_key
    digest = Digest::SHA256.new
    Dir.glob(SOURCES, base: ROOT).sort.each do |file|
      digest << file << "\0" << File.binread(File.join(ROOT, file)) << "\0"
    end
    "#{platform} #{digest.hexdigest}"
  end

  def gem_there?(feature)
    ALTERNATIVES.fetch(feature, ["#{feature}.rb"]).any? { |file| Gem.find_files(file).any? }
  end
end

Facts.all(ARGV).each { |name, value| puts "#{name}=#{Shellwords.escape(value.to_s)}" }
