# frozen_string_literal: true

require_relative "../text"

module Fastrack
  # The folder for unnamed files: long request bodies, and parts of responses that slow clients have not read.
  #
  # Unlike Dir.tmpdir, this accepts a world-writable folder without the sticky bit, such as an emptyDir of Kubernetes. The sticky bit
  # protects named files, and these have no names.
  module TemporaryFolder
    VARIABLES = %w[TMPDIR TMP TEMP].freeze
    # Equal to the engine's list of folders for the time when its own folder fails.
    COMMON = %w[/tmp /var/tmp].freeze

    class << self
      # The first usable folder. Makes the folder of a variable if it is missing.
      #
      # @return [String] the first choice if none is writable
      def path = named.find { |folder| usable?(folder) || made?(folder) } || COMMON.find { |folder| usable?(folder) } || choices.first

      # @return [String, nil] a warning for `fastrack check`
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
