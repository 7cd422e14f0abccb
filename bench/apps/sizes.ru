# frozen_string_literal: true

# Answers of three sizes, all of them made beforehand: hello, 1 MB for /1m, 50 MB for /50m.
large = ("x" * 1_000_000).freeze
huge = ("x" * 50_000_000).freeze

run(lambda do |env|
  body = { "/1m" => large, "/50m" => huge }.fetch(env["PATH_INFO"], "Hello world\n")
  [200, { "content-type" => "text/plain", "content-length" => body.bytesize.to_s }, [body]]
end)
