# frozen_string_literal: true

require_relative "../log"

module Fastrack
  # What hooks use of Ruby's Logger where that cannot be loaded: since Ruby 4.0 it is a gem, which a bundle may lack. All levels go to the
  # server's log.
  class PlainLogger
    # They mean nothing here.
    attr_accessor :level, :progname, :formatter

    # The server's levels for those of a Logger.
    LEVELS = { debug: :info, info: :info, warn: :warn, error: :error, fatal: :error, unknown: :error }.freeze

    LEVELS.each do |name, level|
      define_method(name) { |text = nil, &block| Log.line((block ? block.call : text).to_s, level) }
      define_method(:"#{name}?") { true }
    end
  end
end
