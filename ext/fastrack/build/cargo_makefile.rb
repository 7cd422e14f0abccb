# frozen_string_literal: true

require "mkmf"
require "shellwords"
require_relative "toolchain"

# The Makefile of a Rust extension without the rb_sys gem: mkmf's variables (RubyGems sets sitearchdir and DESTDIR
# through them) and rules that call cargo.
#
# RB_SYS_CARGO_TARGET_DIR names cargo's target folder, as in rb_sys' Makefile: bin/setup uses one per Ruby. The default,
# ./target, is removed after an installation.
class CargoMakefile
  # @param target [String] the feature to require, "fastrack/fastrack"; the last part is the library's name in Cargo.toml
  # @param cargo [String] path of cargo
  # @param manifest_dir [String] folder of the crate's Cargo.toml
  def initialize(target, cargo:, manifest_dir:)
    @prefix, @name = File.split(target)
    @cargo = cargo
    @manifest = File.join(manifest_dir, "Cargo.toml")
    @triple = ENV.fetch("CARGO_BUILD_TARGET", nil)
  end

  # @return [String] the Makefile's text
  def to_s
    configuration(File.dirname(@manifest)).join + variables + rules
  end

  private

  def variables
    <<~MAKE

      CARGO ?= #{@cargo}
      RB_SYS_CARGO_TARGET_DIR ?= target
      RUBYARCHDIR = $(sitearchdir)/#{@prefix}
      DLLIB = #{@name}.#{RbConfig::CONFIG["DLEXT"]}
    MAKE
  end

  # Cargo always runs (FORCE), because only cargo knows the outdated files.
  def rules
    <<~MAKE

      all: $(DLLIB)

      FORCE:

      $(DLLIB): FORCE
      \t#{cargo_command}
      \t$(COPY) "$(RB_SYS_CARGO_TARGET_DIR)/#{library}" $(DLLIB)

      install: install-so
      \t-$(Q)$(RM_RF) target

      install-so: $(DLLIB)
      \t$(MAKEDIRS) $(RUBYARCHDIR)
      \t$(INSTALL_PROG) $(DLLIB) $(RUBYARCHDIR)

      clean:
      \t-$(Q)$(RM_RF) $(DLLIB) target

      distclean realclean: clean
      \t-$(Q)$(RM) Makefile mkmf.log

      .PHONY: all install install-so clean distclean realclean FORCE
    MAKE
  end

  # RUBY tells the crates' build scripts which Ruby to build for.
  def cargo_command
    words = ["--release", "--locked", "--lib", "--manifest-path", @manifest]
    words += ["--target", @triple] if @triple
    words += Toolchain.feature_arguments
    "RUBY=#{quote(RbConfig.ruby)} $(CARGO) rustc #{words.map { |word| quote(word) }.join(" ")} " \
      "--target-dir \"$(RB_SYS_CARGO_TARGET_DIR)\" -- #{link_arguments}".rstrip
  end

  # Ruby's symbols are resolved when Ruby loads the file. macOS' linker needs an option for unresolved symbols.
  def link_arguments
    RbConfig::CONFIG["target_os"].include?("darwin") ? "-C link-arg=-Wl,-undefined,dynamic_lookup" : ""
  end

  def library
    extension = RbConfig::CONFIG["target_os"].include?("darwin") ? "dylib" : "so"
    [*@triple, "release", "lib#{@name}.#{extension}"].join("/")
  end

  def quote(word)
    Shellwords.escape(word).gsub("$", "$$")
  end
end
