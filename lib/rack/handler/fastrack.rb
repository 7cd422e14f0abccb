# frozen_string_literal: true

# Required by `rackup -s Fastrack` of Rack 2.2, or by hand for Rack::Handler::Fastrack.run(app, options).
begin
  require "rackup/handler/fastrack"
rescue LoadError => error
  raise unless error.path == "rackup/handler"

  # Rack 2 has a Rack::Handler of its own. Rack 3 without the rackup gem has none, and needs none.
  begin
    require "rack/handler"
  rescue LoadError => error
    raise unless error.path == "rack/handler"
  end
end
require "fastrack"

module Rack
  if defined?(::Rackup::Handler::Fastrack)
    # Rack 3: the old name, without the rackup gem's deprecation warning.
    Handler = ::Rackup::Handler unless const_defined?(:Handler, false)
  else
    # Rack 2's servers.
    module Handler
      # `rackup -s Fastrack` and Rack::Handler::Fastrack.run(app, options).
      class Fastrack < ::Fastrack::Handler
      end

      if respond_to?(:register)
        # Rack 2 looks the name up inside this module.
        register "fastrack", "Rack::Handler::Fastrack"
        register "Fastrack", "Rack::Handler::Fastrack"
        singleton_class.prepend(::Fastrack::DefaultServer)
      end
    end
  end
end
