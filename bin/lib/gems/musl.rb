# frozen_string_literal: true

require "fileutils"
require "open3"
require "tmpdir"
require_relative "native_file"
require_relative "symbols"

module Gems
  # Loads compiled files by musl's own loader. Debian has no Ruby for musl: a library of stubs has Ruby's symbols instead,
  # so what is tested is that musl has all the rest, and can load the file.
  class Musl
    # A library with an entry, which musl runs as a program: zig links programs for musl statically, and those load nothing.
    # The processor's stack is as the kernel left it there.
    LOADER = <<~C
      #include <dlfcn.h>
      #include <string.h>
      #include <unistd.h>
      #ifdef __x86_64__
      __attribute__((force_align_arg_pointer))
      #endif
      void start(void) {
        void *file = dlopen(FILE_TO_LOAD, RTLD_NOW);
        if (!file) { write(1, dlerror(), strlen(dlerror())); _exit(1); }
        _exit(dlsym(file, "Init_fastrack") ? 0 : 2);
      }
    C

    # @param platform [Platform]
    # @param libc [String] musl's library, which is its loader, too
    # @param emulator [Array<String>] what runs programs of the platform, if this machine does not
    def initialize(platform, libc:, emulator: [])
      @platform = platform
      @libc = libc
      @emulator = emulator
    end

    # @return [Array<String>] what is wrong with the file
    def problems(file)
      symbols = Symbols.new(file)
      missing = symbols.needed - Symbols.new(@libc).defined
      return ["musl has no #{missing.join(", ")}"] unless missing.empty?

      Dir.mktmpdir("musl") { |dir| load(File.expand_path(file), symbols.needed_of_ruby, dir) }
    end

    private

    def load(file, ruby_symbols, dir)
      stubs = compile(dir, "stubs", ruby_symbols.map { |name| "void #{name}(void) {}\n" }.join)
      loader = compile(dir, "loader", LOADER, "-Wl,-e,start", "-DFILE_TO_LOAD=#{file.inspect}")
      output, status = Open3.capture2e(*@emulator, @libc, "--preload", stubs, loader)
      status.success? ? [] : ["#{status}: #{output}"]
    end

    def compile(dir, name, code, *flags)
      source = File.join(dir, "#{name}.c")
      library = File.join(dir, "#{name}.so")
      File.write(source, code)
      words = [Gems.tool("zig"), "cc", "-w", "-fno-builtin", "-target", "#{@platform.cpu}-linux-musl", "-shared", "-fPIC", *flags,
               "-o", library, source]
      output, status = Open3.capture2e(*words)
      raise "#{words.join(" ")}: #{output}" unless status.success?

      library
    end
  end
end
