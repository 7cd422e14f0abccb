# frozen_string_literal: true

module Fastrack
  # The process title of masters, see Launcher#title.
  module MasterTitle
    PATTERN = /\Afastrack master(?: \[[^\0]*\])?\0*\z/n.freeze

    # @param pid [Integer]
    # @return [Boolean] whether a process has it; false also where there is no /proc. Any process of the same user may call itself so.
    def self.of?(pid)
      PATTERN.match?(File.binread("/proc/#{pid}/cmdline"))
    rescue SystemCallError
      false
    end
  end
end
