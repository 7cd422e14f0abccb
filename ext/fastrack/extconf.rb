# frozen_string_literal: true

# Writes the Makefile that compiles the Rust extension: for `gem install`, and for bin/setup.
#
# With the rb_sys gem, create_rust_makefile writes the Makefile, as usual for Rust extensions; without, build/cargo_makefile.rb.
# Both build the same fastrack/fastrack.so. The gem does not depend on rb_sys: Debian bookworm has no package of rb_sys, and a
# machine without access to RubyGems.org could not install Fastrack.
#
# FASTRACK_FEATURES names cargo features of the extension, for tests: "portable".

require_relative "build/toolchain"

Toolchain.target!

require "mkmf"

workspace = File.expand_path("../..", __dir__)
cargo = Toolchain.cargo!(workspace)
Toolchain.libclang!

begin
  require "rb_sys/mkmf"
  rb_sys = true
rescue LoadError
  rb_sys = false
end

if rb_sys
  create_rust_makefile("fastrack/fastrack") do |makefile|
    # The Ruby to build for. Without RUBY, the crates' build scripts would use the first Ruby on PATH.
    makefile.env = { "RUBY" => RbConfig.ruby }
    makefile.env["PATH"] = "#{File.dirname(cargo)}:$(PATH)" unless Toolchain.executable("cargo") == cargo
    makefile.extra_cargo_args += ["--locked", *Toolchain.feature_arguments]
    # No downloads unasked: Toolchain tells how to install Rust.
    makefile.auto_install_rust_toolchain = false
    # Remove the 140 MB of intermediate files after installation.
    makefile.clean_after_install = true
    makefile.rubygems_clean_dirs += ["./target"]
  end
else
  require_relative "build/cargo_makefile"
  File.write("Makefile", CargoMakefile.new("fastrack/fastrack", cargo: cargo, manifest_dir: __dir__).to_s)
end
