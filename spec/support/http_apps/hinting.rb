# frozen_string_literal: true

module HttpApps
  # Sends early hints, in the way that the path names.
  class Hinting
    HINTS = {
      "/lines" => { "link" => "</a.css>; rel=preload\n</b.js>; rel=preload" },
      "/array" => { "link" => ["</a.css>; rel=preload", "</b.js>; rel=preload"] },
      "/none" => {}, "/framing" => { "content-length" => "5", "connection" => "close", "link" => "</a>" },
      "/bad" => { "link" => "a\r\nb" }, "/no-headers" => 5
    }.freeze

    def call(env)
      path = env["PATH_INFO"]
      hint = env["rack.early_hints"]
      return [200, {}, ["no hints"]] unless hint

      hint.call(HINTS.fetch(path, HINTS["/lines"]))
      raise "after the hints" if path == "/raises"

      twice(hint) if path == "/twice"
      return [200, {}, [Enumerator.new { |parts| parts << "one" }.next]] unless path == "/late"

      [200, {}, Enumerator.new { |parts| parts << "one" << late(hint) }]
    end

    private

    def twice(hint)
      hint.call("link" => "</c>")
    end

    def late(hint)
      hint.call("link" => "</d>")
      "two"
    rescue IOError => e
      e.class.name
    end
  end
end
