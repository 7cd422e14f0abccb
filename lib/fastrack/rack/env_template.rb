# frozen_string_literal: true

require_relative "../version"
require_relative "input"

module Fastrack
  # What each request's env is copied from: all that is known before the request, and what most requests have in common
  # (HTTP/1.1, no query), which the engine writes only where it is another.
  module EnvTemplate
    # RFC 3875, 4.1.17.
    SOFTWARE = "Fastrack/#{VERSION}"

    # What a unix socket has instead of a host, a port and a peer: Unicorn's and Puma's. Host and port are for requests that name none.
    UNIX = { "SERVER_NAME" => "localhost", "SERVER_PORT" => "80", "REMOTE_ADDR" => "127.0.0.1", "REMOTE_PORT" => "0" }.freeze

    # Rhebok's.
    RHEBOKS_UNIX = { "SERVER_NAME" => "0.0.0.0", "SERVER_PORT" => "0", "REMOTE_ADDR" => "", "REMOTE_PORT" => "0" }.freeze

    module_function

    # @param listener [Listener] where the requests arrive
    # @param rhebok [Boolean] whether a unix socket's names are Rhebok's
    # @param multithread [Boolean] whether several threads call the app
    # @param script_name [String] where the app is mounted; it stays in PATH_INFO, as under Puma
    # @param early_hints [Boolean] whether the app may send 103 with headers
    # @return [Hash{String => Object}] frozen, like its strings. For true the engine puts what acts on its own request only:
    #   OwnCall::Hijack and the like
    def for(listener, script_name: "", early_hints: false, multithread: false, rhebok: false)
      {
        "SCRIPT_NAME" => script_name, "QUERY_STRING" => "", "SERVER_PROTOCOL" => "HTTP/1.1", "SERVER_SOFTWARE" => SOFTWARE,
        **(rhebok ? RHEBOKS_UNIX : UNIX),
        **(listener.tcp? ? { "SERVER_NAME" => listener.server_name, "SERVER_PORT" => listener.server_port } : {}),
        **for_rack_version, "rack.after_reply" => [], "rack.hijack?" => true, "rack.hijack" => true,
        **(early_hints ? { "rack.early_hints" => true } : {}),
        "rack.errors" => $stderr, "rack.input" => NullInput::SHARED, "rack.url_scheme" => "http",
        "rack.multithread" => multithread, "rack.multiprocess" => true, "rack.run_once" => false,
        "fastrack.client_gone" => true, "fastrack.timeout" => true, "fastrack.queue_time" => 0.0
      }.freeze
    end

    # Rack 2 wants rack.version, which Rack 3 forbids. An app without Rack gets Rack 3's env. The engine gives each
    # request Arrays of its own for callbacks.
    def for_rack_version
      rack2 = defined?(::Rack) && ::Rack.respond_to?(:release) && ::Rack.release.to_i < 3
      rack2 ? { "rack.version" => [1, 1].freeze } : { "rack.response_finished" => [] }
    end
    private_class_method :for_rack_version
  end
end
