# frozen_string_literal: true

module HttpApps
  # Keeps the block that the server gives to each, of the body or of the headers, and calls it when it should not.
  class Keeping
    # A part as each would give it, and a header.
    ARGUMENTS = { "body" => ["late part"], "headers" => %w[x-late part] }.freeze

    # Is the body as well as the headers.
    class Iterable
      def initialize(*parts, &take)
        @parts = parts
        @take = take
      end

      def each(&block)
        yield(*@parts)
        @take.call(block)
      end
    end

    # /body/keep and /headers/keep keep the block. With what is kept /body/call calls it from another request, and
    # /body/thread from another thread; /body/let lets the exception out. /body/meanwhile is a thread while each runs.
    def call(env)
      _, @kind, way = env["PATH_INFO"].split("/")
      case way
      when "keep" then giving { |block| @kept = block }
      when "meanwhile" then giving { |block| @seen = Thread.new { attempt(block) }.value }
      when "seen" then answer(@seen)
      when "call" then answer(attempt(@kept))
      when "thread" then answer(Thread.new { attempt(@kept) }.value)
      when "let" then answer(@kept.call(*ARGUMENTS.fetch(@kind)))
      else answer("hello")
      end
    end

    private

    def answer(text, headers = { "content-type" => "text/plain" }) = [200, headers, [text]]

    def giving(&take)
      return answer("now", Iterable.new("x-now", "yes", &take)) if @kind == "headers"

      [200, { "x-now" => "yes" }, Iterable.new("now", &take)]
    end

    def attempt(block)
      block.call(*ARGUMENTS.fetch(@kind))
      "nothing"
    rescue ThreadError => e
      e.class.name
    end
  end
end
