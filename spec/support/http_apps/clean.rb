# frozen_string_literal: true

require "digest"

module HttpApps
  # Keeps to the Rack SPEC in all it does, and to what Rack::Lint can find, and looks at all that the SPEC gives it.
  class Clean
    TEXT = { "content-type" => "text/plain" }.freeze

    # Each, close and nothing else.
    class Parts
      def each(&block) = %w[one two].each(&block)
      # By the SPEC there may be one.
      def close; end
    end

    # A file that is sent as it is.
    class FileBody < Parts
      def to_path = __FILE__
    end

    def call(env)
      env["rack.response_finished"]&.push(->(*) { env["rack.errors"].puts("finished") })
      case env["PATH_INFO"]
      when "/file" then text(env, FileBody.new)
      when "/hijack" then hijack(env["rack.hijack"].call)
      when "/partial" then [200, TEXT.merge("rack.hijack" => method(:stream)), []]
      when "/streaming" then [200, TEXT.dup, method(:stream)]
      when "/hints" then hint(env) && text(env, ["hinted"])
      when "/length" then text(env, ["hello"], "content-length" => "5")
      when "/each" then text(env, Parts.new)
      when "/empty" then text(env, [])
      when "/no-content" then [204, {}, []]
      when "/not-modified" then [304, { "etag" => "\"a\"" }, []]
      when "/cookies" then text(env, ["hello"], "set-cookie" => HttpApps.rack3? ? %w[a=1 b=2] : "a=1\nb=2")
      when "/input" then text(env, [input(env["rack.input"])])
      when "/errors" then errors(env["rack.errors"]) && text(env, ["done"])
      else text(env, [env.keys.join("\n")])
      end
    end

    private

    def text(env, body, headers = {}) = [200, TEXT.merge(headers), env["REQUEST_METHOD"] == "HEAD" ? [] : body]

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
      "#{[first, middle, into].compact.sum(&:bytesize) + rest} #{last.bytesize}"
    end

    def hijack(io)
      stream(io, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\nhijacked")
      [200, TEXT.dup, []]
    end

    def stream(io, text = "streamed")
      io.write(text)
      io.flush
      io.close
    end

    def hint(env)
      env["rack.early_hints"].call({ "link" => "</a>; rel=preload" })
      true
    end

    def errors(errors)
      errors.puts "put"
      errors.write "written\n"
      errors.flush
      true
    end
  end
end
