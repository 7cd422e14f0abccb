# frozen_string_literal: true

# Required by `rackup -s fastrack` and `-s Fastrack` of the rackup gem (2.0 and later).
require "rackup/handler"
require "fastrack"

module Rackup
  # The rackup gem's servers.
  module Handler
    # `rackup -s Fastrack` and Rackup::Handler::Fastrack.run(app, **options).
    class Fastrack < ::Fastrack::Handler
    end

    # Unregistered names are looked up as constants. If there is none, rackup silently starts another server.
    register :fastrack, Fastrack
    register :Fastrack, Fastrack
    singleton_class.prepend(::Fastrack::DefaultServer)
  end
end
