# frozen_string_literal: true

require "rbconfig"

# Finds what it takes to compile the extension besides Ruby, before cargo starts: whoever installs a gem could not make
# sense of what cargo, or a crate deep below it, prints if something is missing.
module Toolchain
  # Where clang-sys finds libclang, on Linux and macOS (its `directory` and `search` modules).
  LIBCLANG_FOLDERS = %w[
    /usr/lib /usr/lib64 /usr/local/lib /usr/local/lib64 /usr/lib/*-linux-* /usr/lib/llvm*/lib* /usr/lib/llvm/*/lib*
    /usr/local/llvm*/lib* /opt/homebrew/opt/llvm/lib /usr/local/opt/llvm/lib /Library/Developer/CommandLineTools/usr/lib
    /Applications/Xcode.app/Contents/Developer/Toolchains/XcodeDefault.xctoolchain/usr/lib
  ].freeze

  # How to install libclang, by package manager.
  LIBCLANG_PACKAGES = {
    "apt-get" => "apt-get install libclang-dev", "dnf" => "dnf install clang-devel", "apk" => "apk add clang-dev",
    "pacman" => "pacman -S clang", "zypper" => "zypper install clang-devel", "brew" => "brew install llvm"
  }.freeze

  RUSTUP = "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y"

  # Where the extension runs, as Ruby names the system.
  SYSTEMS = /linux|darwin/

  module_function

  # Ends the process with one line where the extension cannot be compiled.
  # @param system [String] what Ruby calls the target's operating system
  def target!(system = RbConfig::CONFIG["target_os"])
    return if system.match?(SYSTEMS)

    abort "fastrack: #{system} is not supported: Fastrack runs on Linux and macOS, on Windows in WSL 2"
  end

  # Cargo features of the extension to be compiled.
  def features
    ENV.fetch("FASTRACK_FEATURES", "").split(/[\s,]+/).reject(&:empty?)
  end

  def feature_arguments
    features.any? ? ["--features", features.join(",")] : []
  end

  # The absolute path of cargo. Ends the process with one line if there is none that is new enough.
  # @param workspace [String] the folder of the workspace's Cargo.toml, which names the oldest `rust-version`
  def cargo!(workspace)
    wanted = File.read(File.join(workspace, "Cargo.toml"))[/^rust-version = "([\d.]+)"/, 1]
    cargo = find_cargo
    abort "fastrack: cargo (Rust #{wanted} or newer) is missing; install it with: #{RUSTUP}" unless cargo

    found = IO.popen([cargo, "--version"], err: File::NULL, &:read)[/\Acargo ([\d.]+)/, 1]
    return cargo if found && Gem::Version.new(found) >= Gem::Version.new(wanted)

    abort "fastrack: #{cargo} is #{found || "unusable"}, Rust #{wanted} or newer is needed; " \
          "get it with: rustup update stable, or without rustup: #{RUSTUP}"
  end

  # Ends the process with one line if bindgen would not find libclang.
  def libclang!
    return if ENV["LIBCLANG_PATH"] || executable("llvm-config") || libclang_installed?

    command = LIBCLANG_PACKAGES.find { |manager, _| executable(manager) }&.last || "your package manager (libclang)"
    abort "fastrack: libclang is missing; install it with: #{command}"
  end

  # $CARGO, else the PATH's, else where rustup puts it: a shell that was open before rustup ran lacks it on its PATH.
  def find_cargo
    home = ENV.fetch("CARGO_HOME") { File.expand_path("~/.cargo") }
    [ENV.fetch("CARGO", nil), executable("cargo"), File.join(home, "bin/cargo")].compact.find { |f| File.executable?(f) }
  end

  def libclang_installed?
    LIBCLANG_FOLDERS.any? do |folder|
      Dir.glob(File.join(folder, "libclang{,-*}.{so,so.*,dylib}")).any? { |file| !file.include?("libclang-cpp") }
    end
  end

  def executable(name)
    ENV.fetch("PATH", "").split(File::PATH_SEPARATOR).map { |dir| File.join(dir, name) }.find { |f| File.executable?(f) }
  end
end
