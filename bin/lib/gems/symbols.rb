# frozen_string_literal: true

require "open3"

module Gems
  # The demands of a native file for Linux on the system that loads it. readelf prints them.
  class Symbols
    MACHINES = { "x86_64" => "X86-64", "aarch64" => "AArch64" }.freeze

    # Ruby defines these, and Ruby loads the file.
    RUBY = /\A(?:rb|ruby|st|onig|onigenc)_/.freeze

    LIBRARIES = /\A(?:libc|libm|libdl|libpthread|librt)\.so|\Ald-linux/.freeze

    def initialize(file)
      @file = file
    end

    # @param program [Boolean] whether it is a program, which Ruby does not load
    # @return [Array<String>] why the file cannot be in a gem of that platform
    def problems(platform, program: false)
      found = []
      found << "is for #{machine}" unless machine.include?(MACHINES.fetch(platform.cpu))
      found << "has no Init_fastrack" unless program || defined.include?("Init_fastrack")
      found << "needs #{(libraries.grep_v(LIBRARIES)).join(", ")}" unless libraries.grep_v(LIBRARIES).empty?
      found << "needs glibc #{glibc}" if platform.glibc && glibc && glibc > Gem::Version.new(platform.glibc)
      found << "needs glibc" if platform.musl? && glibc
      found
    end

    # @return [Gem::Version, nil] the newest glibc that it asks for
    def glibc
      @glibc ||= readelf("--version-info").scan(/\bGLIBC_([\d.]+)/).flatten.map { |version| Gem::Version.new(version) }.max
    end

    # @return [Array<String>] what the system's libraries have to define
    def needed
      undefined.grep_v(RUBY)
    end

    # @return [Array<String>]
    def defined
      symbols.reject { |_, section, _| section == "UND" }.map(&:last)
    end

    # @return [Array<String>] those that the file cannot be loaded without
    def undefined
      symbols.select { |binding, section, _| section == "UND" && binding != "WEAK" }.map(&:last)
    end

    # @return [Array<String>]
    def libraries
      readelf("--dynamic").scan(/\(NEEDED\).*\[(.+)\]/).flatten
    end

    private

    def machine
      readelf("--file-header")[/Machine:\s+(.+)/, 1].to_s
    end

    def symbols
      @symbols ||= readelf("--dyn-syms").scan(/^\s*\d+: \h+\s+\w+\s+\w+\s+(\w+)\s+\w+\s+(\w+) ([^\s@]+)/)
    end

    def readelf(option)
      output, status = Open3.capture2("readelf", "--wide", option, @file)
      raise "readelf cannot read #{@file}" unless status.success?

      output
    end
  end
end
