# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require "rubygems/user_interaction"
require "zlib"
require_relative "mach_o"
require_relative "native_file"
require_relative "package"
require_relative "symbols"

module Gems
  # The gems of one platform: the source gem's files, and a compiled one for each Ruby. The sources stay in it: a Ruby that
  # none of the files fits can compile them (ext/fastrack/build/fallback.rb).
  class PlatformGem
    ROOT = NativeFile::ROOT

    # The Rubies that a release has files for. A gem is for all from its first to its last one: RubyGems knows no exceptions. There is
    # no Ruby 3.5.
    RUBIES = %w[3.1 3.2 3.3 3.4 4.0].freeze

    # Bytes, with files for all Rubies.
    SIZE_LIMIT = 7_500_000

    # Builds the gems that this machine can build, and names the others.
    #
    # @return [Array<String>] paths
    def self.build_all(folder)
      can, cannot = PLATFORMS.map { |platform| new(platform) }.partition { |one| one.native_files.any? }
      paths = can.flat_map { |one| one.build(folder) }
      cannot.each { |one| puts "#{one.name}: not built, this machine has no Ruby's headers for it" }
      paths
    end

    # The gems of a release.
    #
    # @return [Hash{String => Array<String>}] compiled files, by the names of the gems
    def self.expected
      version = Gem::Specification.load(File.join(ROOT, "rhebok-rs.gemspec")).version
      PLATFORMS.each_with_object("rhebok-rs-#{version}.gem" => []) do |platform, found|
        files = RUBIES.map { |api| "lib/fastrack/#{api}/#{platform.native_file}" }
        platform.gem_names.each_key { |name| found["rhebok-rs-#{version}-#{name}.gem"] = files }
      end
    end

    # @param native_files [Array] what responds to `api` and `path`; by default one for each Ruby whose headers are here
    # @param program what responds to `build`, `path` and `feature`: the proxy's
    def initialize(platform, native_files: NativeFile.of(platform), program: ProgramFile.new(platform))
      @platform = platform
      @native_files = native_files
      @program = program
    end

    attr_reader :native_files

    def name
      @platform.name
    end

    # @return [Array<String>] Rubies that the gem is for and has no file for: they compile one at the first start
    def lacking
      apis = native_files.map(&:api)
      RUBIES.select { |api| Gem::Version.new(api).between?(*[apis.first, apis.last].map { |one| Gem::Version.new(one) }) } - apis
    end

    # Compiles the missing files and packs the gems.
    #
    # @param folder [String] where the gems are put
    # @return [Array<String>] their paths
    def build(folder)
      raise "#{@platform.name}: no Ruby's headers for it are here; see bin/lib/gems/README.md" if native_files.empty?

      native_files.each { |file| check(file.build) }
      check(@program.build, program: true)
      specifications.map { |specification| within_limits(pack(specification, folder)) }
    end

    # @return [Array<Gem::Specification>] one, or more for different RubyGems
    def specifications
      @platform.gem_names.map do |name, rubygems|
        Gem::Specification.load(File.join(ROOT, "rhebok-rs.gemspec")).dup.tap do |spec|
          # By its parts: an old RubyGems drops the libc from a name that it reads.
          spec.platform = Gem::Platform.new(name.split("-").values_at(0, 1, 2))
          spec.extensions = []
          spec.files += [*native_files.map { |file| feature(file) }, @program.feature]
          spec.required_ruby_version = [">= #{native_files.first.api}", "< #{after(native_files.last.api)}.dev"]
          spec.required_rubygems_version = rubygems
        end
      end
    end

    # From a folder of its own: the checkout's lib/ has what bin/setup has compiled for this machine.
    def pack(specification, folder)
      FileUtils.mkdir_p(folder)
      path = File.join(File.expand_path(folder), "#{specification.name}-#{specification.version}-#{specification.platform}.gem")
      Dir.mktmpdir("fastrack-gem") do |stage|
        specification.files.each { |file| copy(file, stage) }
        Gem::DefaultUserInteraction.use_ui(Gem::SilentUI.new) do
          Dir.chdir(stage) { Package.build(specification, false, false, path) }
        end
      end
      path
    end

    private

    # A file that cannot be loaded is not packed.
    def check(file, program: false)
      problems = (@platform.darwin? ? MachO : Symbols).new(file).problems(@platform, program: program)
      raise "#{file} #{problems.join("; ")}" unless problems.empty?
    end

    def within_limits(path)
      without = " (and not #{lacking.join(", ")}: no headers)" if lacking.any?
      puts format("%s: %.2f MB, Ruby %s%s", path, File.size(path) / 1e6, native_files.map(&:api).join(", "), without)
      files = native_files.map { |file| packed(file.path) }
      full = File.size(path) + (files.max * (RUBIES.size - files.size))
      puts format("  proxy %.2f MB, a Ruby's file %.2f MB; with all Rubies %.2f MB", packed(@program.path) / 1e6, files.max / 1e6, full / 1e6)
      raise "#{path} is too large: more than #{SIZE_LIMIT} bytes (rake native:setup gets zopfli, which makes it smaller)" if full > SIZE_LIMIT

      path
    end

    # Bytes of a file in a gem.
    def packed(path) = Zlib.gzip(File.binread(path), level: Zlib::BEST_COMPRESSION).bytesize

    def feature(file)
      "lib/fastrack/#{file.api}/#{File.basename(file.path)}"
    end

    def copy(file, stage)
      native = @program.feature == file ? @program : native_files.find { |one| feature(one) == file }
      FileUtils.mkdir_p(File.dirname(File.join(stage, file)))
      FileUtils.cp(native ? native.path : File.join(ROOT, file), File.join(stage, file), preserve: true)
    end

    # As rake-compiler has it: 4.1 after 4.0; and 3.5 after 3.4, which keeps 4.0 out of a gem that has no file for it.
    def after(api)
      major, minor = api.split(".").map(&:to_i)
      "#{major}.#{minor + 1}"
    end
  end
end
