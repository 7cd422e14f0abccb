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
    STUBS = "stubs.so"

    LOADER = <<~C
      #include <dlfcn.h>
      #include <stdio.h>
      int main(int argc, char **argv) {
        void *file = dlopen(argv[1], RTLD_NOW);
        if (!file) { puts(dlerror()); return 1; }
        return dlsym(file, "Init_fastrack") ? 0 : 2;
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

      Dir.mktmpdir("musl") { |dir| load(file, symbols.needed_of_ruby, dir) }
    end

    private

    def load(file, ruby_symbols, dir)
      compile(dir, STUBS, ruby_symbols.map { |name| "void #{name}(void) {}\n" }.join, "-shared", "-fPIC")
      compile(dir, "loader", LOADER)
      output, status = Open3.capture2e(*@emulator, @libc, "--preload", File.join(dir, STUBS), File.join(dir, "loader"), file)
      status.success? ? [] : ["#{status}: #{output}"]
    end

    def compile(dir, name, code, *flags)
      source = File.join(dir, "#{name}.c")
      File.write(source, code)
      words = [Gems.tool("zig"), "cc", "-w", "-fno-builtin", "-target", "#{@platform.cpu}-linux-musl", *flags, "-dynamic",
               "-o", File.join(dir, name), source]
      output, status = Open3.capture2e(*words)
      raise "#{words.join(" ")}: #{output}" unless status.success?
    end
  end
end
