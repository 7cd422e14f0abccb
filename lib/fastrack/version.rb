# frozen_string_literal: true

module Fastrack
  # The only place where the version is written; the gemspec reads it from here.
  VERSION = "0.1.0"
end
