# frozen_string_literal: true

require "tempfile"

module Fastrack
  # Turns a large request body that the native side has spooled to a file into what applications expect of it.
  #
  # @api private
  module SpooledBody
    # @param descriptor [Integer] an open file without a name, at its start; owned by this method
    # @return [Tempfile] the same file: binary, and already deleted, so that nothing is left behind by a crash
    def self.call(descriptor)
      file = File.for_fd(descriptor, "r+b")
      tempfile = Tempfile.new("fastrack")
      tempfile.unlink
      tempfile.reopen(file)
      tempfile.binmode
      tempfile
    ensure
      file&.close
    end
  end
end
