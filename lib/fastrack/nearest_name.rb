# frozen_string_literal: true

module Fastrack
  # Finds what a user may have meant by a name that does not exist.
  module NearestName
    # @param names [Array<Symbol>] the names that exist
    # @return [String] "; did you mean X?", or nothing when no name is near
    def self.hint(name, names)
      # Ruby can be started, and built, without it.
      return "" unless defined?(DidYouMean::SpellChecker)

      nearest = DidYouMean::SpellChecker.new(dictionary: names).correct(name).first
      nearest ? "; did you mean #{nearest}?" : ""
    end
  end
end
