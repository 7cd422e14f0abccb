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

    # @param push [Boolean] whether to publish them
    def make(push: false)
      FileUtils.rm_f(Dir.glob(File.join(@folder, "*.gem")))
      native = PlatformGem.build_all(@folder)
      gems = native + [source]
      gems.each { |file| try(file) }
      write_sums(gems)
      push ? gems.each { |file| run("gem", "push", file) } : puts("To publish them: PUSH=yes rake release")
    end

    private

    def source
      specification = Gem::Specification.load(File.join(ROOT, "rhebok-rs.gemspec"))
      path = File.join(@folder, specification.file_name)
      Dir.chdir(ROOT) { Gem::Package.build(specification, false, false, path) }
      path
    end

    def try(file)
      return puts("#{File.basename(file)}: not tried, it is for another system; see bin/test --lane gems") unless fits?(file)

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

    def run(*words)
      system(*words, chdir: ROOT) || raise("#{words.join(" ")} failed")
    end
  end
end
