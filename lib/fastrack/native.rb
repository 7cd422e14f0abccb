# frozen_string_literal: true

# Loads the native extension.
#
# A gem for a platform has one extension for each Ruby API version (`fastrack/3.3/fastrack`). bin/setup builds into the same folders, so
# that one checkout serves several Rubies. RubyGems compiles for one Ruby, into `fastrack/fastrack`.

require_relative "error"

module Fastrack
  # @api private
  module Native
    # The API version of the running Ruby, "3.3"; extensions are compatible within it.
    API_VERSION = RUBY_VERSION[/\A\d+\.\d+/].freeze

    # Where the extension may be, most specific first.
    FEATURES = ["fastrack/#{API_VERSION}/fastrack", "fastrack/fastrack"].freeze

    # Compiles the extension where no file of a platform gem fits this Ruby.
    FALLBACK = File.expand_path("../../ext/fastrack/build/fallback.rb", __dir__)

    problem = nil
    loaded = FEATURES.any? do |feature|
      require feature
      true
    rescue LoadError => e
      # The file exists and does not load: it is for another architecture or libc.
      problem ||= Error.reason(e) unless e.path == feature
      false
    end

    unless loaded
      require FALLBACK if File.exist?(FALLBACK)
      unless defined?(Fallback) && Fallback.platform_gem?
        raise Error, problem || "the native extension of Fastrack is not built for Ruby #{RUBY_VERSION} (#{RUBY_PLATFORM}): " \
                                "run bin/setup in a checkout, or reinstall the gem with `gem pristine rhebok-rs`"
      end

      begin
        require Fallback.new(API_VERSION, problem).compile
      rescue LoadError => e
        raise Error, Error.reason(e)
      end
    end
  end
end
