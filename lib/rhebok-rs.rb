# frozen_string_literal: true

# The gem's own name, which Bundler requires: after it `rackup -s fastrack`, `rails s -u fastrack` and
# Rack::Handler::Fastrack are there.
require_relative "fastrack"
require "rack/handler/fastrack"
