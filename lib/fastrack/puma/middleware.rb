# frozen_string_literal: true

require "rack"

module Fastrack
  # What words of a puma.rb do to requests, around the app.
  module PumaMiddleware
    module_function

    # @param app [#call]
    # @param given [Hash{Symbol => Object}] see PumaFile
    # @return [#call]
    def wrap(app, given)
      %i[fiber methods address scheme].each { |name| app = public_send(name, app, given[name]) if given[name] }
      given[:log] ? ::Rack::CommonLogger.new(app, given[:logger] || $stdout) : app
    end

    # Thread and fiber locals of the app's end with its request.
    def fiber(app, _which) = ->(env) { Fiber.new { app.call(env) }.resume }

    def methods(app, allowed)
      lambda do |env|
        next app.call(env) if allowed.include?(env["REQUEST_METHOD"])

        text = "#{env["REQUEST_METHOD"]} method is not supported"
        [501, { "content-type" => "text/plain", "content-length" => text.bytesize.to_s }, [text]]
      end
    end

    # @param source [String, Hash] the address, or where its header is in the env: its first word counts
    def address(app, source)
      lambda do |env|
        address = source.is_a?(Hash) ? env[source[:header]].to_s[/[^\s,]+/] : source
        app.call(address ? env.update("REMOTE_ADDR" => address) : env)
      end
    end

    def scheme(app, name) = ->(env) { app.call(env.update("rack.url_scheme" => name)) }
  end
end
