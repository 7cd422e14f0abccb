# frozen_string_literal: true

require "open3"

module Gems
  # The demands of a native file for macOS on the system that loads it. LLVM's objdump and nm print them (Debian: llvm; Xcode has them).
  class MachO
    CPUS = { "x86_64" => "X86_64", "arm64" => "ARM64" }.freeze

    # Ruby defines these, and Ruby loads the file.
    RUBY = /\A_(?:rb|ruby|st|onig|onigenc)_/.freeze

    # All of macOS' C library.
    LIBRARIES = %w[/usr/lib/libSystem.B.dylib].freeze

    PREFIX = RUBY_PLATFORM.include?("darwin") ? "" : "llvm-"

    # @return [Boolean] whether the programs are here
    def self.readable? = system("#{PREFIX}objdump", "--version", %i[out err] => File::NULL) || false

    def initialize(file)
      @file = file
    end

    # @param program [Boolean] whether it is a program, which Ruby does not load
    # @return [Array<String>] why the file cannot be in a gem of that platform
    def problems(platform, program: false)
      found = []
      found << "is for processor #{cpu}" unless cpu == CPUS.fetch(platform.cpu)
      found << "has no Init_fastrack" unless program || symbols.match?(/^\h+ .* _Init_fastrack$/)
      found << "is called #{name}" unless program || name == platform.native_file
      found << "needs #{(libraries - LIBRARIES).join(", ")}" unless (libraries - LIBRARIES).empty?
      found << "finds no library with #{homeless.join(", ")}" unless homeless.empty?
      found << "needs macOS #{macos}" if macos.nil? || macos > Gem::Version.new(platform.macos)
      # On Apple silicon the system ends a process whose code has no signature.
      found << "has no signature" unless commands.include?("cmd LC_CODE_SIGNATURE") || cpu != CPUS.fetch("arm64")
      found
    end

    # @return [Gem::Version, nil] the oldest macOS that loads it
    def macos
      version = commands[/cmd LC_BUILD_VERSION\n.*?minos ([\d.]+)/m, 1] || commands[/cmd LC_VERSION_MIN_MACOSX\n.*?version ([\d.]+)/m, 1]
      version && Gem::Version.new(version)
    end

    private

    def cpu = commands[/MH_MAGIC_64\s+(\S+)/, 1]

    # The name that programs know which link to the file.
    def name = commands[/cmd LC_ID_DYLIB\n.*?name (.+?) \(offset/m, 1]

    def libraries = commands.scan(/cmd LC_(?:LOAD|LOAD_WEAK|REEXPORT)_DYLIB\n.*?name (.+?) \(offset/m).flatten

    # The linker has found all others in a library.
    def homeless = symbols.scan(/\(undefined\) .*?(\S+) \(dynamically looked up\)$/).flatten.grep_v(RUBY)

    def commands = @commands ||= told("objdump", "--macho", "--private-headers")

    def symbols = @symbols ||= told("nm", "--extern-only", "--format=darwin")

    def told(program, *options)
      output, status = Open3.capture2e("#{PREFIX}#{program}", *options, @file)
      raise "#{program} cannot read #{@file}: #{output}" unless status.success?

      output
    end
  end
end
