# frozen_string_literal: true

# Writes the Makefile that compiles the Rust extension: for `gem install`, and for bin/setup.
#
# Two ways lead to the same file, lib…/fastrack/fastrack.so. The field's convention is rb_sys' create_rust_makefile, used
# when that gem is there. It is not a dependency of this gem, because it is not everywhere: Debian bookworm has no
# package of it, and a machine without RubyGems.org could then not install Fastrack at all.

require "mkmf"
require_relative "build/toolchain"

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
    # The crates' build scripts ask this Ruby about itself; without it they would ask whichever is first on PATH.
    makefile.env = { "RUBY" => RbConfig.ruby }
    makefile.env["PATH"] = "#{File.dirname(cargo)}:$(PATH)" unless Toolchain.executable("cargo") == cargo
    makefile.extra_cargo_args += ["--locked"]
    # Nothing is downloaded and run that was not asked for: Toolchain says how to get Rust.
    makefile.auto_install_rust_toolchain = false
    # An installed gem keeps none of the 140 MB that the compilation leaves.
    makefile.clean_after_install = true
    makefile.rubygems_clean_dirs += ["./target"]
  end
else
  require_relative "build/cargo_makefile"
  File.write("Makefile", CargoMakefile.new("fastrack/fastrack", cargo: cargo, manifest_dir: __dir__).to_s)
end
