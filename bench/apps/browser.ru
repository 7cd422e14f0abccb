# frozen_string_literal: true

# A page as a browser asks for it: the app looks at every header, as middleware does, and answers
# with 10 KB and 10 headers.
page = "<p>Lorem ipsum dolor sit amet, consectetur adipiscing elit.</p>\n" * 160
page = page.byteslice(0, 10_240).freeze

run(lambda do |env|
  read = 0
  env.each { |name, value| read += value.bytesize if name.start_with?("HTTP_") }
  headers = {
    "content-type" => "text/html; charset=utf-8",
    "content-length" => page.bytesize.to_s,
    "cache-control" => "private, max-age=0, must-revalidate",
    "etag" => "W/\"7d1f0c2b9a4e4b66\"",
    "vary" => "accept-encoding, accept-language",
    "set-cookie" => "session=9f2d6c1e8b7a4f35; path=/; httponly; samesite=lax",
    "x-frame-options" => "SAMEORIGIN",
    "x-content-type-options" => "nosniff",
    "referrer-policy" => "strict-origin-when-cross-origin",
    "x-header-bytes" => read.positive? ? "some" : "none"
  }
  [200, headers, [page]]
end)
