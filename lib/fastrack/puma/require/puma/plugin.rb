# frozen_string_literal: true

# Found by plugins of Puma's where there is no Puma: what they call while they are loaded.
module Puma
  # What configurations and plugins read where there is no Puma.
  module Const
    # The Puma whose events plugins find here.
    PUMA_VERSION = VERSION = "6.6.0"

    SUPPORTED_HTTP_METHODS = %w[HEAD GET POST PUT DELETE OPTIONS TRACE PATCH].freeze

    # https://www.iana.org/assignments/http-methods
    IANA_HTTP_METHODS = %w[
      ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK MERGE MKACTIVITY MKCALENDAR MKCOL
      MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH POST PRI PROPFIND PROPPATCH PUT REBIND REPORT SEARCH TRACE UNBIND
      UNCHECKOUT UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL
    ].freeze
  end

  class UnknownPlugin < RuntimeError
  end

  # A plugin file calls Puma::Plugin.create.
  class Plugin
    # The class is called by the file that calls this: puma/plugin/NAME.rb.
    def self.create(&body)
      name = caller_locations(1, 1).first.path.b[%r{puma/plugin/([^/]*)\.rb\z}, 1]
      Plugins.register(name, Class.new(self, &body))
    end
  end

  # The plugins by name.
  module Plugins
    @plugins = {}

    class << self
      def register(name, plugin)
        @plugins[name] = plugin
      end

      def find(name)
        @plugins.fetch(name) do
          require "puma/plugin/#{name}"
          @plugins.fetch(name) { raise UnknownPlugin, "puma/plugin/#{name} registers no plugin of that name" }
        end
      end
    end
  end

  # Plugins add words to it; see PumaFile.
  class DSL
  end
end
