# frozen_string_literal: true

module Bench
  # A config.ru of bench/apps on Rails or Roda. It runs in servers alone, which have the lane's gems, so that what it must
  # answer is said here.
  class FrameworkApp
    DIR = File.expand_path("../apps", __dir__)
    private_constant :DIR

    # @return [String] path of the config.ru
    attr_reader :path
    # @return [Array<String>] features that its Ruby must be able to require
    attr_reader :features

    # @param file [String] in bench/apps
    # @param features [Array<String>]
    # @yieldparam body [String] what the workload's request got
    # @yieldreturn [Boolean] whether it is right
    def initialize(file, features, &right)
      @path = File.join(DIR, file)
      @features = features
      @right = right
    end

    def framework? = true

    def right?(_request, answered) = @right.call(answered)
  end
end
