# frozen_string_literal: true

# Found by `rackup -s Fastrack` of Rack 2.2, and required by hand: Rack::Handler::Fastrack.run(app, options).
begin
  require "rackup/handler/fastrack"
rescue LoadError => error
  raise unless error.path == "rackup/handler"

  # Rack 2 has the handlers itself; Rack 3 without the rackup gem has none, but can be served all the same.
  begin
    require "rack/handler"
  rescue LoadError => error
    raise unless error.path == "rack/handler"
  end
end
require "fastrack"

module Rack
  if defined?(::Rackup::Handler::Fastrack)
    # Rack 3: the old spelling of the same thing. The rackup gem has it too, with a deprecation warning.
    Handler = ::Rackup::Handler unless const_defined?(:Handler, false)
  else
    # Servers, as Rack 2 names them.
    module Handler
      # `rackup -s Fastrack` and Rack::Handler::Fastrack.run(app, options).
      class Fastrack < ::Fastrack::Handler
      end

      if respond_to?(:register)
        # Rack 2 keeps the name, and looks it up from inside this module.
        register "fastrack", "Rack::Handler::Fastrack"
        register "Fastrack", "Rack::Handler::Fastrack"
      end
    end
  end
end
