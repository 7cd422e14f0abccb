# frozen_string_literal: true

# The gem's name, which Bundler requires. It provides `rackup -s fastrack`, `rails s` (with `-u fastrack` beside Puma) and
# Rack::Handler::Fastrack.
require_relative "fastrack"
require "rack/handler/fastrack"

Fastrack::DefaultServer.watch_rails if defined?(ActiveSupport) && ActiveSupport.respond_to?(:on_load)
