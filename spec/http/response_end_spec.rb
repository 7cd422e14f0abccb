# frozen_string_literal: true

# A client that waits for the rest of a response that has none waits until the connection is given up, and takes the next response
# for that rest (RFC 9112, 6.3).
RSpec.describe "D11 the end of a response", once: "the server's framing, whatever Rack says" do
  # The app's Transfer-Encoding is the query, its body by the path.
  app = <<~'RUBY'
    require "uri"
    chunks = ->(*parts) { [*parts.map { |part| "#{part.bytesize.to_s(16)}\r\n#{part}\r\n" }, "0\r\n\r\n"] }
    bodies = {
      "plain" => ["hello"], "each" => %w[hel lo].each, "none" => [], "none-each" => [].each,
      "chunks" => chunks.("hel", "lo"), "chunks-each" => chunks.("hel", "lo").each, "bytes" => chunks.("hel", "lo").join.chars.each,
      "beyond" => [chunks.("hello").join + "HTTP/1.1 200 OK\r\n\r\n"], "cut" => chunks.("hello")[0, 1].each,
      "last-missing" => chunks.("hel", "lo")[0, 2], "no-chunks" => ["hello"].each, "late" => ["3\r\nhel\r\n", "lo"].each
    }
    run lambda { |env|
      value = URI.decode_www_form_component(env["QUERY_STRING"])
      _, name, status = env["PATH_INFO"].split("/")
      headers = value.empty? ? {} : { "transfer-encoding" => value == "nil" ? nil : value.delete_suffix("-") }
      headers["content-length"] = "5" if env["HTTP_X_LENGTH"]
      [(status || 200).to_i, headers, bodies.fetch(name, ["last"])]
    }
  RUBY

  [false, true].each do |unix|
    context unix ? "over a unix socket" : "over TCP" do
      before(:context) { serve(app, unix: unix) }

      # The response to a request on a connection that the client would keep, whether another one follows, and how it ends.
      def answered(path, *fields, version: "1.1", verb: "GET")
        kept = version == "1.0" ? ["Connection: keep-alive"] : []
        requests = [message("#{verb} #{path} HTTP/#{version}", "Host: a", *kept, *fields), message("GET /last HTTP/#{version}", "Host: a", "Connection: close")]
        bytes, ending = HttpPeer.exchange(server, requests.join)
        first, rest = HttpResponse.take(bytes, head_only: verb == "HEAD")
        last, rest = HttpResponse.take(rest) unless rest.empty?
        expect(rest).to eq("")
        [first, last&.body == "last", ending]
      end

      def framing(response)
        response.headers.to_a.select { |name, _| name.match?(/\A(content-length|transfer-encoding)\z/i) }.map { |name, value| [name.downcase, value] }
      end

      # "-" ends an empty value.
      ["identity", "-", "nil", " , Identity"].each do |coding|
        it "D11 is the server's own where the app's Transfer-Encoding is #{coding.inspect}, which says nothing" do
          { "/plain" => [%w[content-length 5]], "/each" => [%w[transfer-encoding chunked]] }.each do |path, framed|
            response, goes_on, = answered("#{path}?#{coding.gsub(" ", "%20")}")
            expect([framing(response), response.body, goes_on]).to eq([framed, "hello", true])
          end
          response, goes_on, = answered("/plain?#{coding.gsub(" ", "%20")}", "X-Length: 5")
          expect([framing(response), response.body, goes_on]).to eq([[%w[content-length 5]], "hello", true])
        end
      end

      ["gzip", "chunked, gzip", "deflate"].each do |coding|
        it "D11 is the close where the app's Transfer-Encoding is #{coding.inspect}" do
          %w[/plain /each].each do |path|
            response, goes_on, = answered("#{path}?#{coding.gsub(" ", "%20")}", "X-Length: 5")
            expect([framing(response), response.body, response.headers["connection"], goes_on]).to eq([[["transfer-encoding", coding]], "hello", "close", false])
          end
        end

        it "D11 is a 500 for a client of HTTP/1.0 where the app's Transfer-Encoding is #{coding.inspect}" do
          response, = answered("/plain?#{coding.gsub(" ", "%20")}", version: "1.0")
          expect(response.status).to eq(500)
          eventually { server.log.include?("cannot be undone for a client of HTTP/1.0") }
          expect_worker_alive
        end
      end

      it "D11 is the last chunk where the app has made chunks, and the connection goes on" do
        %w[/chunks /chunks-each /bytes].product(%w[chunked Chunked,identity chunked,chunked]).each do |path, coding|
          response, goes_on, = answered("#{path}?#{coding}", "X-Length: 5")
          expect([framing(response).map(&:first), response.body, goes_on]).to eq([%w[transfer-encoding], "hello", true])
        end
      end

      it "D11 is the close for a client of HTTP/1.0 where the app has made chunks, and it gets what is in them" do
        %w[/chunks /chunks-each /bytes].each do |path|
          response, goes_on, = answered("#{path}?chunked", "X-Length: 5", version: "1.0")
          expect([framing(response), response.body, response.headers["connection"], goes_on]).to eq([[], "hello", "close", false])
        end
      end

      it "D11 is there where the app says chunked and has no body" do
        %w[/none /none-each].product(%w[1.1 1.0]).each do |path, version|
          response, goes_on, = answered("#{path}?chunked", version: version)
          expect([framing(response), response.body, goes_on]).to eq([[%w[content-length 0]], "", true])
        end
      end

      it "D11 comes before what the app has after its last chunk" do
        %w[1.1 1.0].each do |version|
          bytes, ending = HttpPeer.exchange(server, message("GET /beyond?chunked HTTP/#{version}", "Host: a"))
          expect([HttpResponse.all(bytes).map(&:body), ending]).to eq([%w[hello], :closed])
        end
      end

      it "D11 is a reset where the app's chunks have none, or are none" do
        %w[/cut /last-missing /late].product(%w[1.1 1.0]).each do |path, version|
          bytes, ending = HttpPeer.exchange(server, message("GET #{path}?chunked HTTP/#{version}", "Host: a"))
          expect([path, bytes.include?("0\r\n\r\n"), ending]).to eq([path, false, unix ? :closed : Front::CUT])
        end
        eventually { server.log.scan("must be in chunks").size >= 6 }
        expect_worker_alive
      end

      it "D11 is a 500 where the app says chunked, and that is seen before anything is sent" do
        %w[/no-chunks /plain].product(%w[1.1 1.0]).each do |path, version|
          expect(answered("#{path}?chunked", version: version).first.status).to eq(500)
        end
      end

      it "D11 needs none on HEAD and 304, and no client of HTTP/1.0 gets a Transfer-Encoding there" do
        [["HEAD", "/chunks"], ["HEAD", "/plain"], ["GET", "/chunks/304"]].product(%w[chunked gzip], %w[1.1 1.0]).each do |(verb, path), coding, version|
          response, goes_on, = answered("#{path}?#{coding}", version: version, verb: verb)
          expect(framing(response).select { |name, _| name == "transfer-encoding" }).to eq(version == "1.1" ? [["transfer-encoding", coding]] : [])
          expect([response.body, goes_on]).to eq(["", version == "1.1"]), response.raw if version == "1.1"
        end
      end

      it "D11 follows the head of a 205, which has no content (RFC 9110, 15.3.6)" do
        ["/plain/205", "/each/205", "/chunks/205?chunked", "/none/205"].product(%w[1.1 1.0]).each do |path, version|
          response, goes_on, = answered(path, "X-Length: 5", version: version)
          expect([response.status, framing(response), response.body, goes_on]).to eq([205, [%w[content-length 0]], "", true])
        end
      end
    end
  end
end
