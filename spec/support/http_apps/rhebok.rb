# frozen_string_literal: true

require "rack"
# Rack::Lint of Rack 2.2 uses it without asking for it.
require "uri"

module HttpApps
  # What Rhebok's own tests want of an app: it shows the env, the body and two environment variables of its process,
  # and sets the headers that those tests look at.
  class Rhebok
    PLAIN = [String, Integer, true, false, nil, Array].freeze

    def call(env)
      seen = env.select { |_, value| PLAIN.any? { |kind| kind === value } }
      seen["test.postdata"] = env["rack.input"].read
      %w[TEST_FOO TEST_BAR].each { |name| seen[name] = ENV[name] if ENV.key?(name) }
      body = Marshal.dump(seen)
      [env["QUERY_STRING"].include?("secret") ? 403 : 200, headers(env["PATH_INFO"], body), [body]]
    end

    private

    def headers(path, body)
      headers = {
        "Content-Type" => "text/yaml", "Content-Length" => body.bytesize.to_s,
        "X-Foo" => "Foo\nBar", "X-Bar" => "Foo\n\nBar", "X-Baz" => "\nBaz", "X-Fuga" => "Fuga\n"
      }
      headers.delete("Content-Length") if path.include?("remove_length")
      headers["Date"] = "Foooo" if path.include?("date")
      headers["Connection"] = "keepalive" if path.include?("connection")
      headers
    end
  end
end
