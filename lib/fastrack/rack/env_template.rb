# frozen_string_literal: true

require_relative "../null_input"

module Fastrack
  # What the env of each request starts from: everything that is known before a request arrives. The keys that a request
  # always sets are there too, so that a copy has room for them, and has them where a unix socket has no value.
  module EnvTemplate
    module_function

    # @param listener [Listener] where the requests arrive
    # @param errors [IO] rack.errors
    # @param client_gone [#call] tells whether the client whose request is being answered has left
    # @param timeout [#call] sets, in seconds, how long the request that is being answered may take from then on
    # @param hijack [#call, nil] gives the connection away; nil where that cannot be
    # @param early_hints [#call, nil] sends 103 with the headers that it is called with
    # @return [Hash{String => Object}] frozen, like all of its strings
    def for(listener, errors: $stderr, client_gone: -> { false }, timeout: ->(_seconds) {}, hijack: nil, early_hints: nil)
      {
        "SCRIPT_NAME" => "", "QUERY_STRING" => "",
        "SERVER_NAME" => listener.server_name, "SERVER_PORT" => listener.server_port,
        "REMOTE_ADDR" => "", "REMOTE_PORT" => "0",
        **rack_version, **callbacks, **taking_part(hijack, early_hints),
        "rack.errors" => errors, "rack.input" => NullInput::SHARED, "rack.url_scheme" => "http",
        "rack.multithread" => false, "rack.multiprocess" => true, "rack.run_once" => false,
        "fastrack.client_gone" => client_gone, "fastrack.timeout" => timeout
      }.freeze
    end

    # Rack 2 wants the version of its protocol in the env and Rack 3 has no such key. What counts is the Rack that the
    # app has loaded; one without Rack is spoken to as by Rack 3.
    def rack_version
      rack2? ? { "rack.version" => [1, 1].freeze } : {}
    end

    # What is called after the response. The engine gives each request that uses one of these Arrays one of its own.
    def callbacks
      { "rack.after_reply" => [], **(rack2? ? {} : { "rack.response_finished" => [] }) }
    end

    def taking_part(hijack, early_hints)
      hijacking = hijack ? { "rack.hijack?" => true, "rack.hijack" => hijack } : { "rack.hijack?" => false }
      early_hints ? { **hijacking, "rack.early_hints" => early_hints } : hijacking
    end

    def rack2?
      defined?(::Rack) && ::Rack.respond_to?(:release) && ::Rack.release.to_i < 3
    end
    private_class_method :rack_version, :callbacks, :taking_part, :rack2?
  end
end
