# frozen_string_literal: true

require "digest"
require "fileutils"
require "rubygems/package"
require_relative "platform_gem"

module Gems
  # All gems of a version, tried as far as this machine can run them, with their checksums.
  class Release
    SUMS = "SHA256SUMS"
    APPS = ["examples/hello/config.ru=Fastrack serves this page"].freeze
    ROOT = NativeFile::ROOT

    def initialize(folder)
      @folder = File.expand_path(folder, ROOT)
    end

    # Builds and tries what this machine can.
    def make
      FileUtils.mkdir_p(@folder)
      FileUtils.rm_f(Dir.glob(File.join(@folder, "*.gem")))
      gems = PlatformGem.build_all(@folder) + [source]
      gems.each { |file| try(file) }
      write_sums(gems)
      puts [homepage_problem].compact.map { |problem| "not to be published yet: #{problem}" }
    end

    # Publishes the folder, which one machine or the workflow of a forge has filled, if it is whole.
    def publish
      run("sha256sum", "--check", "--quiet", SUMS, chdir: @folder)
      gaps = PlatformGem.expected.filter_map { |name, files| gap(name, files) } + [homepage_problem].compact
      raise "nothing is published: #{gaps.join("; ")}" unless gaps.empty?

      PlatformGem.expected.each_key { |name| run("gem", "push", name, chdir: @folder) }
    end

    # The gemspec may name a place that does not exist yet, and a published gem cannot be changed.
    #
    # @param remotes [String] those of the repository
    # @return [String, nil]
    def homepage_problem(remotes = IO.popen(["git", "remote", "--verbose", { chdir: ROOT }], &:read))
      homepage = Gem::Specification.load(File.join(ROOT, "rhebok-rs.gemspec")).homepage
      place = homepage.delete_prefix("https://").sub("/", "[/:]")
      return if remotes.match?(/(?:\A|[\s@\/])#{place}(?:\.git)?\/?\s/)

      "the gemspec's homepage is #{homepage}, which is no remote of this repository (git remote --verbose): correct `forge` there"
    end

    private

    # Without a Ruby's file in a platform's gem, that Ruby's users would need a compiler, unlike all others.
    def gap(name, files)
      path = File.join(@folder, name)
      return "there is no #{name}" unless File.exist?(path)

      lacking = files - Gem::Package.new(path).spec.files
      "#{name} has no #{lacking.join(", ")}" unless lacking.empty?
    end

    def source
      specification = Gem::Specification.load(File.join(ROOT, "rhebok-rs.gemspec"))
      path = File.join(@folder, specification.file_name)
      Dir.chdir(ROOT) { Gem::Package.build(specification, false, false, path) }
      path
    end

    def try(file)
      return puts("#{File.basename(file)}: not run: it is for another system or RubyGems (bin/lib/gems/README.md)") unless fits?(file)

      run(RbConfig.ruby, File.join(__dir__, "smoke.rb"), file, *APPS)
    end

    # The source gem fits wherever there is a compiler.
    def fits?(file)
      spec = Gem::Package.new(file).spec
      platform = PLATFORMS.find { |one| one.gem_names.key?(spec.original_platform.to_s) }
      (platform.nil? || platform.here?) && spec.required_rubygems_version.satisfied_by?(Gem.rubygems_version)
    end

    # In the format of sha256sum(1), which also checks them: sha256sum --check SHA256SUMS
    def write_sums(gems)
      lines = gems.sort.map { |file| "#{Digest::SHA256.file(file).hexdigest}  #{File.basename(file)}\n" }
      File.write(File.join(@folder, SUMS), lines.join)
      puts lines
    end

    def run(*words, chdir: ROOT)
      system(*words, chdir: chdir) || raise("#{words.join(" ")} failed")
    end
  end
end
