# frozen_string_literal: true

# Writes the Makefile that compiles the proxy's program: for `gem install`, and for bin/setup.
#
# It is a program and no extension, but RubyGems compiles extensions only. Ruby's headers and libclang are not needed.

require_relative "../fastrack/build/toolchain"

Toolchain.target!

require "mkmf"
require "shellwords"

workspace = File.expand_path("../..", __dir__)
# rb_sys and bin/setup name cargo's target folder; the default, ./target, is removed after an installation.
command = [Toolchain.cargo!(workspace), "build", "--profile", "proxy", "--locked", "--package", "fastrack-proxy", "--manifest-path",
           File.join(workspace, "Cargo.toml")]
command += ["--target", ENV["CARGO_BUILD_TARGET"]] if ENV["CARGO_BUILD_TARGET"]
program = [*ENV["CARGO_BUILD_TARGET"], "proxy", "fastrack-proxy"].join("/")
quoted = command.map { |word| Shellwords.escape(word).gsub("$", "$$") }.join(" ")

File.write("Makefile", configuration(__dir__).join + <<~MAKE)

  RB_SYS_CARGO_TARGET_DIR ?= target
  RUBYARCHDIR = $(sitearchdir)/fastrack
  PROGRAM = fastrack-proxy

  all: $(PROGRAM)

  FORCE:

  # Cargo always runs, because only cargo knows the outdated files.
  $(PROGRAM): FORCE
  \t#{quoted} --target-dir "$(RB_SYS_CARGO_TARGET_DIR)"
  \t$(COPY) "$(RB_SYS_CARGO_TARGET_DIR)/#{program}" $(PROGRAM)

  install: $(PROGRAM)
  \t$(MAKEDIRS) $(RUBYARCHDIR)
  \t$(INSTALL) -m 0755 $(PROGRAM) $(RUBYARCHDIR)
  \t-$(Q)$(RM_RF) target

  clean:
  \t-$(Q)$(RM_RF) $(PROGRAM) target

  distclean realclean: clean
  \t-$(Q)$(RM) Makefile mkmf.log

  .PHONY: all install clean distclean realclean FORCE
MAKE
