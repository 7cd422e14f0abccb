# frozen_string_literal: true

# The gem's name, which Bundler requires. It provides `rackup -s fastrack`, `rails s -u fastrack` and
# Rack::Handler::Fastrack.
require_relative "fastrack"
require "rack/handler/fastrack"
