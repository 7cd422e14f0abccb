# frozen_string_literal: true

require "open3"
require "rbconfig"
require_relative "platforms"

module Gems
  # The headers of one Ruby for one platform, from which the crates generate their bindings.
  class Headers
    # The oldest Ruby that the gem supports.
    OLDEST = Gem::Version.new("3.1")

    # A release of Ruby, for which PATCHLEVEL is not -1: the crate would build for a development version.
    PATCHLEVEL = "100"

    FACTS = <<~'RUBY'
      c = RbConfig::CONFIG
      print [RUBY_ENGINE, c["MAJOR"] + "." + c["MINOR"], c["host_cpu"], c["host_os"], c["rubyhdrdir"], c["rubyarchhdrdir"]].join("\n")
    RUBY

    class << self
      # @return [Array<Headers>] those of the platform that this machine has, one for each Ruby, oldest first
      def of(platform)
        (installed(platform) + fetched(platform) + made(platform)).uniq(&:api).select { |one| one.usable? }.sort_by { |one| Gem::Version.new(one.api) }
      end

      private

      # Of the Rubies that FASTRACK_RUBIES names, and of the one that runs this file.
      def installed(platform)
        rubies = ENV.fetch("FASTRACK_RUBIES", "").split(File::PATH_SEPARATOR) + [RbConfig.ruby]
        rubies.filter_map do |ruby|
          facts, status = Open3.capture2(ruby, "--disable-gems", "-rrbconfig", "-e", FACTS)
          raise "#{ruby} does not run" unless status.success?

          engine, api, cpu, os, common, arch = facts.split("\n")
          new(platform, api, common, arch) if engine == "ruby" && fits?(platform, cpu, os)
        end
      end

      # The libc does not matter: types and structures of Ruby's API are the same with glibc and musl, and functions that
      # only one of them has are none of Ruby's.
      def fits?(platform, cpu, os)
        [platform.cpu, platform.cpu.sub("arm64", "aarch64")].include?(cpu) && os.start_with?(platform.os)
      end

      # Unpacked by setup.sh from Debian's packages.
      def fetched(platform)
        return [] unless platform.debian

        include = File.join(Gems.cache, "headers", platform.debian, "usr/include")
        Dir.glob("#{include}/ruby-*").map do |common|
          new(platform, common[/ruby-(\d+\.\d+)/, 1], common, "#{include}/#{platform.cpu}-linux-gnu/#{File.basename(common)}")
        end
      end

      # By cross_headers.sh from Ruby's sources, or by hand: a folder for each processor and system, in it one for each Ruby.
      def made(platform)
        folder = ENV.fetch("FASTRACK_HEADERS") { File.join(Gems.cache, "made") }
        Dir.glob("#{folder}/#{platform.cpu}-#{platform.os}/[0-9]*").map do |one|
          new(platform, File.basename(one), "#{one}/include", "#{one}/arch")
        end
      end
    end

    # @return [String] the version of Ruby's API, "3.3"
    attr_reader :api

    def initialize(platform, api, common, arch)
      @platform = platform
      @api = api
      @common = common
      @arch = arch
    end

    def usable?
      Gem::Version.new(api) >= OLDEST && File.exist?("#{@common}/ruby.h") && File.exist?("#{@arch}/ruby/config.h")
    end

    # The answers of a Ruby of the platform to `rb-sys`.
    #
    # @return [Hash{String => String}] environment variables
    def environment
      major, minor = api.split(".")
      {
        "CROSS_COMPILING" => "yes", "MAJOR" => major, "MINOR" => minor, "TEENY" => "0", "PATCHLEVEL" => PATCHLEVEL,
        "RUBY_PROGRAM_VERSION" => "#{api}.0", "ruby_version" => "#{api}.0", "RUBY_API_VERSION" => api,
        "ruby_install_name" => "ruby", "RUBY_SO_NAME" => "ruby", "ENABLE_SHARED" => "yes",
        "arch" => @platform.name, "platform" => @platform.name, "target_os" => @platform.os, "host_os" => @platform.os,
        "rubyhdrdir" => @common, "rubyarchhdrdir" => @arch
      }.transform_keys { |name| "RBCONFIG_#{name}" }
    end
  end
end
