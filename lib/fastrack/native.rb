# frozen_string_literal: true

# Loads the native extension.
#
# bin/setup builds it into a folder named after the Ruby API version (`fastrack/3.3/fastrack`), so that one checkout serves
# several Rubies; gems with a binary for each Ruby do the same. RubyGems compiles for one Ruby, into `fastrack/fastrack`.
module Fastrack
  # @api private
  module Native
    # The API version of the running Ruby, "3.3"; extensions are compatible within it.
    API_VERSION = RUBY_VERSION[/\A\d+\.\d+/].freeze

    # Where the extension may be, most specific first.
    FEATURES = ["fastrack/#{API_VERSION}/fastrack", "fastrack/fastrack"].freeze

    loaded = FEATURES.any? do |feature|
      require feature
      true
    rescue LoadError => error
      # An extension that exists but does not load (another architecture, another libc) is an error.
      raise unless error.path == feature
    end
    unless loaded
      raise LoadError, "the native extension of Fastrack is not built for Ruby #{RUBY_VERSION} (#{RUBY_PLATFORM}): " \
                       "run bin/setup in a checkout, or reinstall the gem with `gem pristine rhebok-rs`"
    end
  end
end
