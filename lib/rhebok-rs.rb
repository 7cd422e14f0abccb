# frozen_string_literal: true

# Bundler requires the file with the gem's name. This file provides `rackup -s fastrack`, `rails s` (with `-u fastrack` beside Puma) and
# Rack::Handler::Fastrack.
require_relative "fastrack"
require "rack/handler/fastrack"

Fastrack::DefaultServer.watch_rails if defined?(ActiveSupport) && ActiveSupport.respond_to?(:on_load)
