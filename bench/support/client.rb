# frozen_string_literal: true

require "net/http"

module Bench
  # Asks a server one request, to see that it is up and that it answers what it should.
  module Client
    # Seconds until an answer counts as none.
    PATIENCE = 60
    private_constant :PATIENCE

    # @return [Array(Integer, String)] the status and the body as it came, compressed or not; 0 and nothing when there is no answer
    # @raise [SystemCallError] when nobody listens or the connection breaks
    def self.ask(endpoint, request)
      socket = endpoint.connect
      socket.write(request.to_s(close: true))
      reader = Net::BufferedIO.new(socket, read_timeout: PATIENCE)
      response = Net::HTTPResponse.read_new(reader)
      response.reading_body(reader, true) { response.read_body }
      [response.code.to_i, response.body]
    rescue IOError, Net::ReadTimeout, Net::HTTPBadResponse
      [0, ""]
    ensure
      socket&.close
    end
  end
end
