# frozen_string_literal: true

require_relative "../text"

module Fastrack
  # Where files without a name go: long bodies of requests, and what slow clients have not taken of responses.
  #
  # Unlike Dir.tmpdir, this takes a folder that everybody may write to and that has no sticky bit, as an emptyDir of Kubernetes. That bit keeps
  # others from replacing files by their names.
  module TemporaryFolder
    VARIABLES = %w[TMPDIR TMP TEMP].freeze
    # As the engine has them, for when its folder is of no use any more.
    COMMON = %w[/tmp /var/tmp].freeze

    class << self
      # Makes the folder that a variable names, if it is missing.
      #
      # @return [String] the first choice where none can be written to
      def path = named.find { |folder| usable?(folder) || made?(folder) } || COMMON.find { |folder| usable?(folder) } || choices.first

      # @return [String, nil] what is wrong, for `fastrack check`
      def shortage
        return if choices.any? { |folder| usable?(folder) || (!File.exist?(folder) && usable?(File.dirname(folder))) }

        "no folder for temporary files (#{choices.join(", ")}) can be written to: request bodies over 1 MiB get 503, workers wait for slow readers"
      end

      private

      def choices = (named + COMMON).uniq
      def named = ENV.values_at(*VARIABLES).compact.reject(&:empty?).map { |folder| Text.expand(folder) }

      def made?(folder)
        Dir.mkdir(folder, 0o700)
        true
      rescue SystemCallError
        false
      end

      def usable?(folder) = File.directory?(folder) && File.writable?(folder)
    end
  end
end
