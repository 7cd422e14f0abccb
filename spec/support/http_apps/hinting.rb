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
      return [200, {}, [leave(hint, path)]] if path.start_with?("/leave")
      return [200, {}, [@left.resume(true)]] if path == "/back"

      hint.call(HINTS.fetch(path, HINTS["/lines"]))
      raise "after the hints" if path == "/raises"

      hint.call("link" => "</c>") if path == "/twice"
      return [200, {}, [Enumerator.new { |parts| parts << "one" }.next]] unless path == "/late"

      [200, {}, Enumerator.new { |parts| parts << "one" << late(hint) }]
    end

    private

    # A value, or headers, that leave the server in the middle of its work, until somebody comes back.
    def leave(hint, path)
      value = Object.new.tap { |object| object.define_singleton_method(:to_s) { Fiber.yield("left") && "</e>" } }
      return leave_block(hint, value) if path == "/leave-block"

      @left = Fiber.new { outcome { hint.call("link" => value) } }
      @left.resume
    end

    def leave_block(hint, value)
      headers = Object.new
      fiber = nil
      headers.define_singleton_method(:each) { |&block| (fiber = Fiber.new { block.call(["link", value]) }).resume }
      hint.call(headers)
      @left = Fiber.new { outcome { fiber.resume(true) } }
      "left"
    end

    def outcome
      yield
      "sent"
    rescue IOError, ThreadError => e
      e.class.name
    end

    def late(hint)
      hint.call("link" => "</d>")
      "two"
    rescue IOError => e
      e.class.name
    end
  end
end
