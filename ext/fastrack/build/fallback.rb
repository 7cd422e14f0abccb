# frozen_string_literal: true

require "fileutils"
require "open3"
require "rbconfig"
require "tmpdir"

module Fastrack
  # Compiles the extension if none of the files in a platform's gem fits the Ruby in use: Ruby is newer than the gem, or
  # RubyGems has mistaken the system for another. A platform's gem has the sources, but RubyGems does not compile them.
  class Fallback
    ROOT = File.expand_path("../../..", __dir__)

    # @return [Boolean] whether this is a platform's gem: it has compiled files, and is not a checkout
    def self.platform_gem?
      Dir.glob("#{ROOT}/lib/fastrack/[0-9]*/fastrack.*").any? && !File.exist?("#{ROOT}/bin/setup")
    end

    # @param api [String] the version of Ruby's API
    # @param problem [String, nil] the reason for which this Ruby's file does not load; nil without such a file
    def initialize(api, problem)
      @api = api
      @problem = problem
    end

    # Compiles the file that fastrack/native looks for first.
    #
    # @return [String] its path
    # @raise [Error]
    def compile
      check_folder
      Dir.mktmpdir("fastrack") do |work|
        run(work, RbConfig.ruby, File.join(__dir__, "..", "extconf.rb"))
        warn "fastrack: #{reason}; compiling one, which takes about a minute"
        run(work, "make", env: { "RB_SYS_CARGO_TARGET_DIR" => File.join(work, "target"), "RB_SYS_CARGO_PROFILE" => "release" })
        put(File.join(work, name))
      end
      File.join(folder, name)
    end

    private

    def name
      "fastrack.#{RbConfig::CONFIG["DLEXT"]}"
    end

    def folder
      File.join(ROOT, "lib/fastrack", @api)
    end

    def reason
      return "the compiled file for Ruby #{@api} does not load here (#{@problem})" if @problem

      others = Dir.glob("#{ROOT}/lib/fastrack/[0-9]*/#{name}").map { |file| File.basename(File.dirname(file)) }.sort
      "this gem has no compiled file for Ruby #{RUBY_VERSION} on #{RUBY_PLATFORM} (it has #{others.join(", ")})"
    end

    # Checked before compiling, which takes a minute. The folder of a new Ruby does not exist yet.
    def check_folder
      existing = File.directory?(folder) ? folder : File.dirname(folder)
      refuse("#{existing} cannot be written to: run `fastrack check` once as its owner") unless File.writable?(existing)
    end

    def run(work, *command, env: {})
      output, status = Open3.capture2e(env, *command, chdir: work, stdin_data: "")
      return if status.success?

      lines = output.lines(chomp: true).reject(&:empty?)
      explained = lines.grep(/\Afastrack: /).last || lines.last || "#{command.join(" ")} failed"
      refuse(explained.delete_prefix("fastrack: "))
    rescue Errno::ENOENT
      refuse("#{command.first} is missing")
    end

    def refuse(why)
      raise Error, "#{reason}, and it cannot be compiled: #{why}"
    end

    # Renames the file into place: another server may do the same, or may have mapped an old file.
    def put(file)
      FileUtils.mkdir_p(folder)
      temporary = File.join(folder, "#{name}.#{Process.pid}")
      FileUtils.install(file, temporary, mode: 0o755)
      File.rename(temporary, File.join(folder, name))
    ensure
      FileUtils.rm_f(temporary) if temporary
    end
  end
end
