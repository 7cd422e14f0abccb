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

    # rackup looks up unregistered names as constants. Without such a constant rackup silently starts another server.
    register :fastrack, Fastrack
    register :Fastrack, Fastrack
    singleton_class.prepend(::Fastrack::DefaultServer)
  end
end
