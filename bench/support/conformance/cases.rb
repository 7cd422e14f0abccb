# frozen_string_literal: true

module Conformance
  # Bytes that a suite sends. `wants`: :taken (`count` requests reach the app), :refused (4xx, 5xx, or the end of the connection), :waits (for
  # more bytes); nil where only the suite's code says it.
  Case = Struct.new(:name, :bytes, :wants, :count)

  # Reads cases out of the suites' own tests.
  module Cases
    ESCAPES = { "r" => "\r", "n" => "\n", "t" => "\t", "f" => "\f", "0" => "\0" }.freeze

    module_function

    def of(suite, path)
      cases = public_send(suite.tr("-", "_"), File.expand_path(path))
      cases.empty? ? raise("no case in #{path}: is it #{suite}?") : cases
    end

    # test/request/*.md: bytes, and what the parser reports. Its lenient modes and pauses are left out.
    def llhttp(path)
      texts = Dir["#{path}/test/request/*.md"].sort.map { |file| File.read(file) }
      cases = texts.join.scan(/^#+ ([^\n]+)\n(?:(?!^#)[^\n]*\n)*?<!-- meta=(\{.*?\}) -->\s*```http\n(.*?)\n```\n(?:(?!```).)*```log\n(.*?)```/m)
      cases.select { |_, meta| meta.match?(/"type": ?"request"/) && !meta.match?(/pause|skipBody/) }.map do |title, _, bytes, log|
        taken, error = log.scan("message complete").size, log[/error code=(\d+)/, 1]
        # 5: bytes after a last request. 22, 23: what follows an Upgrade is not for the parser.
        wants = error && !%w[5 22 23].include?(error) ? :refused : (taken.zero? ? :waits : :taken)
        Case.new(title, with_host(markdown(bytes)), wants, taken)
      end
    end

    # src/proto/h1: heads with the length of their bodies, and first lines of chunks.
    def hyper(path)
      tests = File.read("#{path}/src/proto/h1/role.rs")[/fn test_decoder_request.*?^    fn /m]
      heads = tests.scan(/parse(_err)?\(\s*"\\\n(.*?)\\r\\n\\\n\s*"(?:,\s*"(.*?)")?.*?(?:DecodedLength::\w+\(?(\d*)|;)/m)
      lines = File.read("#{path}/src/proto/h1/decode.rs").scan(/(?:assert_eq!\((\d+), read|read_err)\("(.*?)"(?:, (\w+))?\)\.await/)
      heads.map do |failing, text, title, size|
        head = unescape("#{text.gsub(/\\\n\s*/, "").strip}\\r\\n")
        Case.new(title || head, with_host(head + (head.include?("chunked\r") ? "0\r\n\r\n" : "x" * size.to_i)), failing ? :refused : :taken, 1)
      end + lines.map do |size, line, error|
        rest = size ? "#{"x" * size.to_i}\r\n#{"0\r\n\r\n" unless size == "0"}" : ""
        bytes = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n#{unescape(line)}#{rest}"
        Case.new("chunk #{line}", bytes, size ? :taken : (error == "UnexpectedEof" ? :waits : :refused), 1)
      end
    end

    # test/protocol/http1/connection*: a heredoc, a string, or one header line; and whether the reader raises.
    def protocol_http1(path)
      Dir["#{path}/test/protocol/http1/{connection,connection/*}.rb"].sort.flat_map do |file|
        File.read(file).split(file.end_with?("connection.rb") ? /^\t+(?=it ")/ : /^\t+(?=with ")/).filter_map do |text|
          bytes = text[/<<~HTTP.*?\n(.*?\n)\t*HTTP$/m, 1]&.gsub(/^\t*/, "")&.gsub("\n", "\r\n")&.gsub("\#{'a' * 8192}", "a" * 8192)
          line = text[/let\(:headers\) \{\[\s*"(.*?)"\s*\]\}/m, 1]
          bytes ||= unescape(line ? "GET / HTTP/1.1\\r\\nHost: localhost\\r\\n#{line}\\r\\n\\r\\n" : text[/client\.stream\.write "([^#]*?)"$/, 1] || next)
          raised = text[/raise_exception\((?:\w+::)*(\w+)/, 1]
          Case.new(text[/"(.*?)"/, 1], bytes.b, raised ? (raised == "EOFError" ? :waits : :refused) : :taken, 1)
        end
      end
    end

    # The C# strings. Many of its judges are code, which is not read.
    def http11probe(path)
      Dir["#{path}/src/Http11Probe/TestCases/Suites/*.cs"].sort.flat_map { |file| File.read(file).split("yield return new ") }.filter_map do |part|
        text = part[/MakeRequest\(((?:\s*\+?\s*\$?"(?:[^"\\]|\\.)*")+)\s*\)/m, 1]
        next if text.nil? || part.start_with?("Sequence") || text.match?(/\{(?!ctx\.HostHeader)/)

        wants = { "Exact(400)" => :refused, "Range2xx" => :taken }[part[/ExpectedStatus = StatusCodeRange\.(\w+(?:\(\d+\))?)/, 1]]
        Case.new(part[/Id = "(.*?)"/, 1], unescape(text.scan(/"((?:[^"\\]|\\.)*)"/).join.gsub("{ctx.HostHeader}", "localhost")), wants)
      end
    end

    # This server's own examples, of crates/http.
    def rules(path)
      require "#{path}/spec/support/http_rules"
      HttpRules.examples.map { |one| Case.new(one.rule, one.bytes, one.status == 200 ? :taken : :refused) }
    end

    # The bytes of a string literal of Rust, C# or Ruby.
    def unescape(text)
      text.b.gsub(/\\(?:x(\h\h)|u00(\h\h)|(.))/n) { ($1 || $2)&.hex&.chr || ESCAPES.fetch($3, $3) } # rubocop:disable Style/PerlBackrefs
    end

    # llhttp knows fewer escapes, and leaves other backslashes as they are.
    def markdown(text)
      text.b.gsub("\\\n", "").gsub(/\r?\n/, "\r\n").gsub(/\\(?:([rntf])|x(\h\h)|([0-7]{1,3}))/n) { $1 ? ESCAPES.fetch($1) : ($2 ? $2.hex : $3.oct).chr } # rubocop:disable Style/PerlBackrefs
    end

    # Parsers' tests have no Host. Each request of HTTP/1.1 without one gets one.
    def with_host(bytes)
      bytes.b.gsub(%r{^(\S+ [^\r\n]* HTTP/1\.[1-9]\r\n)(?!(?:[^\r\n]+\r\n)*host:)}in, "\\1Host: a\r\n")
    end
  end
end
