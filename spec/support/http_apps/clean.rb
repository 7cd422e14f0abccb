# frozen_string_literal: true

require "digest"

module HttpApps
  # Keeps to the Rack SPEC in all it does, and to what Rack::Lint can find, and looks at all that the SPEC gives it.
  class Clean
    TEXT = { "content-type" => "text/plain" }.freeze

    # Each, close and nothing else.
    class Parts
      def each
        yield "one"
        yield "two"
      end

      def close
        # By the SPEC there may be one.
      end
    end

    # A file that is sent as it is.
    class FileBody < Parts
      def to_path
        __FILE__
      end
    end

    def call(env)
      env["rack.response_finished"]&.push(->(*) { env["rack.errors"].puts("finished") })
      case env["PATH_INFO"]
      when "/file" then [200, TEXT.dup, bodyless(env, FileBody.new)]
      when "/hijack" then hijack(env["rack.hijack"].call)
      when "/partial" then [200, TEXT.merge("rack.hijack" => method(:stream)), []]
      when "/streaming" then [200, TEXT.dup, method(:stream)]
      when "/hints" then hint(env)
      when "/length" then [200, TEXT.merge("content-length" => "5"), bodyless(env, ["hello"])]
      when "/each" then [200, TEXT.dup, bodyless(env, Parts.new)]
      when "/empty" then [200, TEXT.dup, []]
      when "/no-content" then [204, {}, []]
      when "/not-modified" then [304, { "etag" => "\"a\"" }, []]
      when "/cookies" then [200, TEXT.merge("set-cookie" => cookies), bodyless(env, ["hello"])]
      when "/input" then [200, TEXT.dup, [input(env["rack.input"])]]
      when "/errors" then errors(env["rack.errors"])
      else [200, TEXT.dup, bodyless(env, [env.keys.join("\n")])]
      end
    end

    private

    def bodyless(env, body)
      env["REQUEST_METHOD"] == "HEAD" ? [] : body
    end

    def cookies
      HttpApps.rack3? ? %w[a=1 b=2] : "a=1\nb=2"
    end

    # Reads in every way that the SPEC knows.
    def input(input)
      return "none" unless input

      first = input.gets
      middle = input.read(10)
      into = +""
      input.read(10, into)
      rest = 0
      input.each { |line| rest += line.bytesize }
      last = input.read
      total = [first, middle, into].compact.sum(&:bytesize) + rest
      [total, last.bytesize].join(" ")
    end

    def hijack(io)
      io.write("HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\nhijacked")
      io.flush
      io.close
      [200, TEXT.dup, []]
    end

    def stream(io)
      io.write("streamed")
      io.flush
      io.close
    end

    def hint(env)
      env["rack.early_hints"].call({ "link" => "</a>; rel=preload" })
      [200, TEXT.dup, bodyless(env, ["hinted"])]
    end

    def errors(errors)
      errors.puts "put"
      errors.write "written\n"
      errors.flush
      [200, TEXT.dup, ["done"]]
    end
  end
end
