# frozen_string_literal: true

require "rbconfig"

# Finds the tools for compiling the extension before cargo starts: an error of cargo, or of a dependency's build script, would
# not name the missing tool.
module Toolchain
  # Folders in which clang-sys looks for libclang on Linux and macOS (`directory` and `search` modules of clang-sys).
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

  # Supported systems, by Ruby's names.
  SYSTEMS = /linux|darwin/

  module_function

  # Exits with one line if the extension does not support the system.
  # @param system [String] Ruby's name of the target's operating system
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

  # The absolute path of cargo. Exits with one line if cargo is missing or too old.
  # @param workspace [String] the folder of the workspace's Cargo.toml with the minimal `rust-version`
  def cargo!(workspace)
    wanted = File.read(File.join(workspace, "Cargo.toml"))[/^rust-version = "([\d.]+)"/, 1]
    cargo = find_cargo
    abort "fastrack: cargo (Rust #{wanted} or newer) is missing; install it with: #{RUSTUP}" unless cargo

    found = IO.popen([cargo, "--version"], err: File::NULL, &:read)[/\Acargo ([\d.]+)/, 1]
    return cargo if found && Gem::Version.new(found) >= Gem::Version.new(wanted)

    abort "fastrack: #{cargo} is #{found || "unusable"}, Rust #{wanted} or newer is needed; " \
          "get it with: rustup update stable, or without rustup: #{RUSTUP}"
  end

  # Exits with one line if bindgen would not find libclang.
  def libclang!
    return if ENV["LIBCLANG_PATH"] || executable("llvm-config") || libclang_installed?

    command = LIBCLANG_PACKAGES.find { |manager, _| executable(manager) }&.last || "your package manager (libclang)"
    abort "fastrack: libclang is missing; install it with: #{command}"
  end

  # $CARGO, else cargo on PATH, else rustup's cargo, which shells opened before rustup ran do not have on PATH.
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
