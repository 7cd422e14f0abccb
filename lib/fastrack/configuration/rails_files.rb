# frozen_string_literal: true

require_relative "../error"
require_relative "../proxy/program"

module Fastrack
  # Has the proxy answer the files of a Rails app where RAILS_SERVE_STATIC_FILES has Rails itself answer them.
  module RailsFiles
    VARIABLE = "RAILS_SERVE_STATIC_FILES"

    # Words that users take for a no. Rails takes any text for a yes.
    NO = /\A(?:0|false|no|off|)\z/i.freeze

    FOLDER = "public"

    # Names of compiled assets have a digest.
    RULES = [["/assets/*".freeze, "public, max-age=31536000, immutable".freeze].freeze].freeze

    # For the log.
    LINE = "the files of #{FOLDER}/ are answered without the app, and its pages are compressed (#{VARIABLE}); `public_files false` leaves both to the app"

    # @param environment [Hash, ENV]
    # @param values [Hash{Symbol => Object}] all options
    # @return [Hash{Symbol => Object}] options that the variable changes
    def self.options(environment, values)
      return {} if NO.match?(environment[VARIABLE].to_s) || !File.directory?(FOLDER)
      return {} if values[:Path] || values[:Listen]&.none?(&:port)

      # Without the program, Rails serves the files itself.
      Proxy::Program.path
      { PublicFiles: FOLDER, CacheControl: values[:CacheControl] || RULES }
    rescue Error
      {}
    end
  end
end
