# frozen_string_literal: true

require "stringio"

module Bench
  # One HTTP/1.1 request, as the bytes that the load generator sends and as the Rack env from which
  # an app is asked what its answer should be.
  class Request
    attr_reader :verb, :path, :headers, :body

    # @param headers [Hash{String => String}] without Host, Connection and Content-Length
    # @param chunked [Boolean] the body is sent as a chunk instead of with a Content-Length
    def initialize(verb: "GET", path: "/", headers: {}, body: nil, chunked: false)
      @verb = verb
      @path = path
      @headers = headers
      @body = body
      @chunked = chunked
    end

    # @param close [Boolean] ask for the connection to be closed after the answer
    def to_s(close:)
      lines = ["#{verb} #{path} HTTP/1.1", "Host: localhost"]
      lines << "Connection: close" if close
      lines << (@chunked ? "Transfer-Encoding: chunked" : "Content-Length: #{body.bytesize}") if body
      lines.concat(headers.map { |name, value| "#{name}: #{value}" })
      "#{lines.join("\r\n")}\r\n\r\n#{@chunked ? "#{body.bytesize.to_s(16)}\r\n#{body}\r\n0\r\n\r\n" : body}"
    end

    # @return [Hash] the parts of a Rack env that the apps in bench/apps look at
    def env
      fields = headers.to_h { |name, value| ["HTTP_#{name.upcase.tr("-", "_")}", value] }
      fields.merge("REQUEST_METHOD" => verb, "PATH_INFO" => path,
                   "rack.input" => StringIO.new(body.to_s))
    end
  end
end
