# frozen_string_literal: true

require_relative "../http_journal"

module HttpApps
  # Answers with the response that the path names.
  class Responder
    # No more than each.
    Parts = Struct.new(:parts) { def each(&block) = parts.each(&block) }

    # Yields one String object again and again, with other contents.
    class OneBuffer
      def each
        buffer = +""
        %w[first second third].each { |text| yield buffer.replace(text) }
      end
    end

    # Headers that are no Hash, as Rack 2 allows.
    class HeaderPairs
      def each
        yield "x-pair", "one"
        yield ["x-list", "two"]
      end
    end

    TEXT = { "content-type" => "text/plain" }.freeze

    def initialize
      @journal = HttpJournal.new
      @headers = headers
      @bodies = bodies
    end

    def call(env)
      path = env["PATH_INFO"]
      @journal.write("#{env["REQUEST_METHOD"]} #{path}")
      kind, name = path.delete_prefix("/").split("/", 2)
      case kind
      when "status" then [name.to_i, {}, [+"a body that should not be there for some"]]
      when "status-length" then [name.to_i, { "content-length" => "4", "transfer-encoding" => "chunked" }, %w[abcd]]
      when "headers" then [200, @headers.fetch(name).dup, ["body"]]
      when "framed" then [200, @headers.fetch(name).dup, ["4\r\nbody\r\n0\r\n\r\n"]]
      when "pairs" then [200, HeaderPairs.new, ["body"]]
      when "body" then [200, TEXT.dup, @bodies.fetch(name).call]
      when "length" then [200, TEXT.merge("Content-Length" => "10"), @bodies.fetch(name).call]
      else [200, TEXT.dup, ["hello"]]
      end
    end

    private

    def headers
      {
        "plain" => { "X-One" => "1", "x-two" => "2", "X-THREE" => "" },
        "date-server" => { "Date" => "yesterday", "sErVer" => "Mine" },
        "coding-length" => { "Transfer-Encoding" => "chunked", "Content-Length" => "4" },
        "length-coding" => { "content-length" => "4", "transfer-encoding" => "chunked" },
        "length-word" => { "Content-Length" => "abc" }, "length-sign" => { "Content-Length" => "-1" },
        "length-lines" => { "Content-Length" => "4\n5" }, "length-twice" => { "Content-Length" => "4", "content-length" => "400" },
        "connection" => { "Connection" => "keep-alive", "connection" => "Upgrade" },
        "lines" => { "X-Foo" => "Foo\nBar", "X-Bar" => "Foo\n\nBar", "X-Baz" => "\nBaz", "X-Fuga" => "Fuga\n", "X-None" => "\n" },
        "arrays" => { "x-list" => %w[a b], "x-one" => ["c"], "x-none" => [], "set-cookie" => ["d=1", "e=2"] },
        "types" => { "X-Symbol" => :sym, "X-Integer" => 12, "X-Nil" => nil },
        "rack" => { "rack.something" => "secret", "X-Shown" => "yes" },
        "binary" => { "X-Latin" => "caf\xE9".b, "X-Utf" => "caf\u00E9", "X-Tab" => "a\tb" },
        "many" => (1..200).to_h { |index| ["X-#{index}", "v" * 100] },
        "cr" => { "X-Bad" => "a\rb" }, "crlf" => { "X-Bad" => "a\r\nInjected: yes" }, "nul" => { "X-Bad" => "a\0b" },
        "array-lf" => { "x-bad" => ["fine", "a\r\nInjected: yes"] },
        "name-lf" => { "X-Bad\nInjected" => "yes" }, "name-crlf" => { "X-Bad: a\r\nInjected" => "yes" },
        "name-space" => { "X Bad" => "yes" }, "name-colon" => { "X-Bad:" => "yes" }, "name-empty" => { "" => "yes" },
        "name-nul" => { "X-Bad\0" => "yes" }, "date-crlf" => { "Date" => "now\r\nInjected: yes" },
        "server-cr" => { "Server" => "a\rInjected: yes" }, "length-crlf" => { "Content-Length" => "4\r\nInjected: yes" }
      }
    end

    def bodies
      stream = ->(*parts) { -> { Parts.new(parts) } }
      {
        "array" => -> { %w[one two three] }, "empty" => -> { [] }, "blank" => -> { ["", ""] },
        "mixed-array" => -> { ["Content", "", "Again", nil, 0] }, "frozen" => -> { %w[a b].freeze },
        "some" => -> { Array.new(200) { |index| "#{index}," } },
        "many" => -> { Array.new(5000) { |index| "#{index}," } }, "binary" => -> { [(0..255).to_a.pack("C*")] },
        "wide" => -> { ["\u00E9\u4E16", "x".encode("UTF-16LE")] }, "large" => -> { ["x" * 3_000_000, "y" * 3_000_000] },
        "each" => stream.call("one", "two", "three"), "each-empty" => stream.call, "each-blank" => stream.call("", ""),
        "each-mixed" => stream.call("Content", "", "Again", nil, 0), "each-large" => stream.call(*Array.new(100) { "z" * 50_000 }),
        "one-buffer" => -> { OneBuffer.new }, "enumerator" => -> { %w[e n u m].each }, "string" => -> { "no body" }
      }
    end
  end
end
