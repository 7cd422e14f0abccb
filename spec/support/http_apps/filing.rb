# frozen_string_literal: true

require_relative "../http_journal"

module HttpApps
  # Answers with files, by bodies whose to_path names them; the path names the file, and the query what is odd about it.
  class Filing
    # Notes what is done to it. Its parts are not what is in the file, so that it shows which of both was sent.
    class Body
      attr_reader :to_path

      def initialize(path, journal)
        @to_path = path
        @journal = journal
      end

      def each
        yield "by each"
      end

      def close
        @journal.write("closed")
      end
    end

    def initialize
      @journal = HttpJournal.new
    end

    def call(env)
      body = Body.new(path(env), @journal)
      case env["QUERY_STRING"]
      when /\Alength=(\d+)\z/ then [200, { "content-length" => Regexp.last_match(1) }, body]
      when "part" then [206, { "content-length" => "7", "content-range" => "bytes 0-6/9" }, body]
      when "coded" then [200, { "transfer-encoding" => "chunked" }, Coded.new(path(env), @journal)]
      when "status" then [304, {}, body]
      when "removed" then [200, {}, Removed.new(path(env), @journal)]
      else [200, {}, body]
      end
    end

    # Frames its parts itself, as Rack's own Chunked did.
    class Coded < Body
      def each
        yield "5\r\nparts\r\n0\r\n\r\n"
      end
    end

    # Removes its file when it is closed, as a body does that has a temporary one.
    class Removed < Body
      def close
        super
        File.delete(to_path)
      end
    end

    private

    def path(env)
      case env["PATH_INFO"]
      when "/nul" then "a\0b"
      when "/number" then 5
      else File.join(Dir.pwd, env["PATH_INFO"])
      end
    end
  end
end
