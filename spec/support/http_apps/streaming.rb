# frozen_string_literal: true

require "json"

module HttpApps
  # Bodies that Rack 3 brought: callable ones, and those with to_ary.
  class Streaming
    # Both an Enumerable and callable: by the SPEC each comes first.
    class Both
      def each = yield("by each")

      def call(stream)
        stream.write("by call")
        stream.close
      end
    end

    # An Array by its own account.
    class ArrayLike
      def each = yield("by each")
      def to_ary = ["by ", "to_ary"]
    end

    # What the stream must be able to do.
    WANTED = %i[read write << flush close close_read close_write closed?].freeze

    def call(env)
      path = env["PATH_INFO"]
      [200, path == "/length" ? { "content-length" => "5" } : { "content-type" => "text/plain" }, body(path)]
    end

    private

    def body(path)
      case path
      when "/parts" then streaming { |stream| 3.times { |index| stream.write("part #{index},") && stream.flush } }
      when "/append" then streaming { |stream| stream << "a" << "b" }
      when "/able" then streaming { |stream| stream.write(JSON.generate(WANTED.select { |name| stream.respond_to?(name) })) }
      when "/length" then streaming { |stream| stream.write("12345") }
      when "/echo" then streaming { |stream| stream.write(stream.readpartial(100).upcase) }
      when "/thread" then ->(stream) { Thread.new { stream.write("from a thread") && stream.close } }
      when "/gate" then method(:gate)
      when "/both" then Both.new
      when "/to-ary" then ArrayLike.new
      else ["hello"]
      end
    end

    # Ends when the spec has written the file `go`, in a thread of its own.
    def gate(stream)
      stream.write("before,")
      Thread.new do
        sleep 0.005 until File.exist?("go")
        stream.write("after")
        stream.close
      end
    end

    def streaming
      lambda do |stream|
        yield stream
        stream.close
      end
    end
  end
end
