# frozen_string_literal: true

require "fileutils"
require "open3"
require "tmpdir"

module Bench
  # The Ruby and the gems that the servers run with: this machine's, or those of the Debian root that bin/lane keeps.
  # Only the servers run there; nginx and the load generator are always this machine's.
  class Lane
    NAMES = %w[system rack3 ruby34 ruby40 rack32].freeze
    ROOT = File.expand_path("../..", __dir__)
    ENTRY = File.join(ROOT, "bin/lane")
    # Prints the versions of Ruby and gems that the reports name.
    FACTS = <<~'RUBY'
      versions = %w[rack rackup unicorn puma rails roda].to_h do |name|
        [name, Gem::Specification.find_all_by_name(name).map(&:version).max&.to_s]
      end
      yjit = " that has YJIT" if RubyVM.const_defined?(:YJIT)
      print versions.compact.merge("ruby" => "#{RUBY_DESCRIPTION}#{yjit}").to_a.flatten.join("\t")
    RUBY
    private_constant :ENTRY, :FACTS

    attr_reader :name

    def initialize(name)
      @name = name
    end

    # @param words [Array<String>] a program and its arguments
    # @return [Array<String>] the same, run in this lane
    def command(words)
      system? ? words : [ENTRY, name, *words]
    end

    # @return [String] where directories can be made that the lane's programs see too: in a root they have nothing of this
    #   machine's but the checkout
    def scratch
      return Dir.tmpdir if system?

      File.join(ROOT, "tmp").tap { |dir| FileUtils.mkdir_p(dir) }
    end

    # @return [Hash{String => String}] the version of Ruby and of each gem that is there
    # @raise [Options::Invalid] when nothing runs in the lane; bin/lane has said why
    def versions
      @versions ||= begin
        output, status = Open3.capture2(*command(["ruby", "-e", FACTS]))
        raise Options::Invalid, "the lane #{name} cannot be had" unless status.success?

        output.lines.last.split("\t").each_slice(2).to_h
      end
    end

    private

    def system? = name == "system"
  end
end
