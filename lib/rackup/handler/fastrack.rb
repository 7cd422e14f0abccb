# frozen_string_literal: true

# Found by `rackup -s fastrack` and `-s Fastrack` of the rackup gem (2.0 and later).
require "rackup/handler"
require "fastrack"

module Rackup
  # Servers, as the rackup gem names them.
  module Handler
    # `rackup -s Fastrack` and Rackup::Handler::Fastrack.run(app, **options).
    class Fastrack < ::Fastrack::Handler
    end

    # Without a registration rackup looks for a constant of exactly the name given, and where it finds none it starts
    # another server without a word.
    register :fastrack, Fastrack
    register :Fastrack, Fastrack
  end
end
