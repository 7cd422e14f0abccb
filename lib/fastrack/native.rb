# frozen_string_literal: true

# Loads the native extension.
#
# It is looked for in a folder named after the Ruby API version first (`fastrack/3.3/fastrack`): bin/setup puts it there,
# so that one checkout serves several Rubies, and so do gems with a binary for each Ruby. RubyGems compiles for the one
# Ruby that installs the gem and puts it into `fastrack/fastrack`.
module Fastrack
  # @api private
  module Native
    # The API version of the running Ruby, "3.3"; extensions are compatible within it.
    API_VERSION = RUBY_VERSION[/\A\d+\.\d+/].freeze

    # Where the extension may be, most specific first.
    FEATURES = ["fastrack/#{API_VERSION}/fastrack", "fastrack/fastrack"].freeze

    # Requires the first file of FEATURES that exists.
    # @raise [LoadError] when none does, or the one there cannot be loaded (another architecture, another libc)
    def self.load
      FEATURES.each do |feature|
        require feature
        return feature
      rescue LoadError => error
        raise unless missing?(error, feature)
      end
      raise LoadError, "the native extension of Fastrack is not built for Ruby #{RUBY_VERSION} (#{RUBY_PLATFORM}): " \
                       "run bin/setup in a checkout, or reinstall the gem with `gem pristine rhebok-rs`"
    end

    # True when `error` says that the file is not there; false when it is there and does not load, which must be seen.
    def self.missing?(error, feature)
      error.path == feature
    end
    private_class_method :missing?
  end

  Native.load
end
