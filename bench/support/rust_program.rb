# frozen_string_literal: true

module Bench
  # The programs in Rust that belong to the benchmark.
  module RustProgram
    DIR = File.expand_path("..", __dir__)
    private_constant :DIR

    # @param name [String] `load`
    # @return [String] path of the program, which is built before its first use
    # @raise [RuntimeError] when it cannot be built
    def self.path(name)
      @built ||= system("cargo", "build", "--release", "--locked", "--quiet", chdir: DIR) ||
                 raise("the programs cannot be built: cargo build --release in #{DIR}")
      File.join(DIR, "target/release", name)
    end
  end
end
