# frozen_string_literal: true

require "socket"

module Fastrack
  class WarmUp
    # Asks the app over the server's own unix socket, as a client whom a proxy has passed on. The block of `warm_up` gets it.
    #
    # By hand, because net/http would be loaded in the app's process: an app that forgets to require it would work with a warm-up only.
    class Client
      # @!parse
      #   The app's answer.
      Response = Struct.new(:status, :headers, :body)

      # @param socket [String] path
      # @param host [String]
      # @param https [Boolean]
      # @param headers [Hash{String => String}] of each request
      # @param asking [#call] gets each target before it is asked for
      # @yieldparam target [String]
      # @yieldparam status [Integer, nil] nil: the app has not answered
      def initialize(socket, host:, https:, headers: {}, asking: ->(_target) {}, &answered)
        @asking = asking
        @socket = socket
        @https = https
        @headers = { "Host" => host, "User-Agent" => "Fastrack warm-up", "Accept" => "text/html,application/xhtml+xml,*/*;q=0.8", **headers }
        @headers["X-Forwarded-Proto"] ||= "https" if https
        @cookies = {}
        @answered = answered
      end

      # @return [Response, nil] nil: the app has not answered
      def get(target, headers: {}) = request("GET", target, headers: headers)

      # @param body [String]
      # @return [Response, nil]
      def post(target, body: "", headers: {})
        request("POST", target, body: body, headers: { "Content-Type" => "application/x-www-form-urlencoded", **headers })
      end

      # Sends a request, with the cookies of earlier answers.
      #
      # @return [Response, nil]
      def request(method, target, headers: {}, body: nil)
        @asking.call(target)
        head = ["#{method} #{target} HTTP/1.1", *fields(headers, body).map { |name, value| "#{name}: #{value}" }].join("\r\n")
        response = parse(exchange("#{head}\r\n\r\n#{body}"))
        keep_cookies(response) if response
        @answered&.call(target, response&.status)
        response
      end

      private

      def fields(headers, body)
        given = @headers.merge(headers)
        # The engine takes the field out, as for the server's own proxy.
        given["Fastrack-Client"] = "127.0.0.1 50000 #{@https ? "https" : "http"} HTTP/1.1"
        given["Content-Length"] = body.bytesize if body
        given["Cookie"] ||= @cookies.map { |pair| pair.join("=") }.join("; ") if @cookies.any?
        { **given, "Connection" => "close" }
      end

      # @return [String] all that the app has sent
      def exchange(text)
        UNIXSocket.open(@socket) do |socket|
          socket.write(text)
          socket.read
        end
      rescue SystemCallError
        # The app has ended the connection.
        ""
      end

      def parse(text)
        head, body = text.b.split("\r\n\r\n", 2)
        # An interim response has no body.
        head, body = body.split("\r\n\r\n", 2) while head&.match?(%r{\AHTTP/1\.1 1(?!01)}) && body
        status = head.to_s[%r{\AHTTP/1\.[01] (\d{3})}, 1] or return
        headers = head.lines.drop(1).map { |line| line.chomp.split(/: */, 2) }.group_by { |name, _| name.to_s.downcase }
        headers = headers.transform_values { |pairs| pairs.map(&:last).join("\n") }
        chunked = headers["transfer-encoding"].to_s.casecmp?("chunked")
        Response.new(status.to_i, headers, chunked ? joined(body.to_s) : body.to_s)
      end

      # @return [String] the chunks' bytes
      def joined(chunks)
        whole = +"".b
        while (size = chunks[/\A(\h+)[^\n]*\n/, 1]&.hex)&.positive?
          start = chunks.index("\n") + 1
          whole << chunks.byteslice(start, size)
          chunks = chunks.byteslice(start + size + 2..).to_s
        end
        whole
      end

      def keep_cookies(response)
        response.headers["set-cookie"].to_s.lines.each do |line|
          name, value = line.chomp.split(";").first.to_s.split("=", 2)
          @cookies[name] = value if value
        end
      end
    end
  end
end
