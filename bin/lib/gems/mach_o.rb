# frozen_string_literal: true

require "digest"

module Gems
  # What a native file for macOS asks of the system that loads it. It is read from the file's load commands, as <mach-o/loader.h>
  # has them: neither a Mac nor its tools are needed.
  class MachO
    MAGIC = 0xfeedfacf
    CPUS = { "x86_64" => 0x0100_0007, "arm64" => 0x0100_000c }.freeze

    SYMTAB = 0x2
    # As usual, weakly, and for those that link to the file, too.
    LOAD_DYLIBS = [0xc, 0x8000_0018, 0x8000_001f].freeze
    ID_DYLIB = 0xd
    CODE_SIGNATURE = 0x1d
    VERSION_MIN_MACOSX = 0x24
    BUILD_VERSION = 0x32

    # Ruby has these, and whoever loads the file has Ruby.
    RUBY = /\A_(?:rb|ruby|st|onig|onigenc)_/.freeze

    # All of macOS' C library.
    LIBRARIES = %w[/usr/lib/libSystem.B.dylib].freeze

    # <mach-o/nlist.h>: kinds of symbols, and "in whatever file has it" instead of a library's number.
    STAB = 0xe0
    TYPE = 0x0e
    EXTERNAL = 0x01
    DYNAMIC_LOOKUP = 0xfe

    def initialize(file)
      @bytes = File.binread(file)
    end

    # @return [Array<String>] why the file cannot be in a gem of that platform
    def problems(platform)
      return ["is no 64-bit Mach-O file"] unless @bytes.unpack1("L<") == MAGIC

      found = []
      found << "is for processor #{format("%#x", cpu)}" unless cpu == CPUS.fetch(platform.cpu)
      found << "has no Init_fastrack" unless defined.include?("_Init_fastrack")
      found << "is called #{install_name}" unless install_name == platform.native_file
      found << "needs #{(libraries - LIBRARIES).join(", ")}" unless (libraries - LIBRARIES).empty?
      found << "finds no library with #{homeless.join(", ")}" unless homeless.empty?
      found << "needs macOS #{macos}" if macos.nil? || macos > Gem::Version.new(platform.macos)
      found << "has no valid signature" unless signed?
      found
    end

    # @return [Gem::Version, nil] the oldest macOS that loads it
    def macos
      number = (command(BUILD_VERSION)&.unpack("x12L<") || command(VERSION_MIN_MACOSX)&.unpack("x8L<"))&.first
      number && Gem::Version.new([number >> 16, number >> 8 & 0xff, number & 0xff].join("."))
    end

    # @return [String, nil] the name that a program would find it by which is linked to it
    def install_name
      name(command(ID_DYLIB))
    end

    # @return [Array<String>]
    def libraries
      commands.select { |kind, _| LOAD_DYLIBS.include?(kind) }.map { |_, bytes| name(bytes) }
    end

    # @return [Array<String>] what Ruby has to define
    def needed_of_ruby
      undefined.map(&:first).grep(RUBY)
    end

    # @return [Array<String>]
    def defined
      symbols.select { |_, type, _| type & TYPE != 0 }.map(&:first)
    end

    # Whether the system will run its code: on Apple silicon it ends a process with pages that no signature has the right sums of.
    def signed?
      offset, size = command(CODE_SIGNATURE)&.unpack("x8L<2")
      return cpu != CPUS.fetch("arm64") unless offset

      blob = @bytes.byteslice(offset, size)
      blob.unpack("N3").last.times.any? do |index|
        kind, place = blob.unpack("N2", offset: 12 + 8 * index)
        kind.zero? && sums_right?(blob.byteslice(place..))
      end
    end

    private

    def cpu
      @bytes.unpack1("L<", offset: 4)
    end

    # @return [Array<Array(Integer, String)>] each load command's kind and bytes
    def commands
      @commands ||= begin
        place = 32
        Array.new(@bytes.unpack1("L<", offset: 16)) do
          kind, size = @bytes.unpack("L<2", offset: place)
          place += size
          [kind, @bytes.byteslice(place - size, size)]
        end
      end
    end

    def command(kind)
      commands.assoc(kind)&.last
    end

    # Of a library, in a command about one.
    def name(bytes)
      bytes&.unpack1("Z*", offset: bytes.unpack1("L<", offset: 8))
    end

    # @return [Array<Array(String, Integer, Integer)>] name, type and description of those that other files can see
    def symbols
      @symbols ||= begin
        place, count, strings = command(SYMTAB).unpack("x8L<3")
        all = Array.new(count) do |index|
          name, type, _, description = @bytes.unpack("L<CCS<", offset: place + 16 * index)
          [@bytes.unpack1("Z*", offset: strings + name), type, description]
        end
        all.select { |_, type, _| (type & STAB).zero? && type & EXTERNAL != 0 }
      end
    end

    def undefined
      symbols.select { |_, type, _| (type & TYPE).zero? }
    end

    # The linker has found all others in a library.
    def homeless
      undefined.select { |_, _, description| description >> 8 == DYNAMIC_LOOKUP }.map(&:first).grep_v(RUBY)
    end

    # A code directory, as the kernel's sources have it (cs_blobs.h): SHA-256 of each page.
    def sums_right?(directory)
      sums, pages, limit = directory.unpack("x16Nx8N2")
      size, kind, page = directory.unpack("x36CCxC")
      kind == 2 && pages.positive? && pages.times.all? do |index|
        from = index << page
        Digest::SHA256.digest(@bytes.byteslice(from, [1 << page, limit - from].min)) == directory.byteslice(sums + size * index, size)
      end
    end
  end
end
