# frozen_string_literal: true

# Loaded where Puma is not installed: constants and methods that Puma's plugins use while they are loaded.
module Puma
  # Constants of Puma's that configurations and plugins read.
  module Const
    # The version of Puma whose events plugins find.
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
    # The plugin's name is the name of the calling file: puma/plugin/NAME.rb.
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

  # Plugins add words to this class; see PumaFile.
  class DSL
  end
end
