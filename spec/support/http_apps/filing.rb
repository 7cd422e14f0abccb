# frozen_string_literal: true

require_relative "../http_journal"

module HttpApps
  # Answers with files, by bodies whose to_path names them; the path names the file, and the query what is odd about it.
  class Filing
    # Notes what is done to it. Its parts are not what is in the file, so that it shows which of both was sent.
    Body = Struct.new(:to_path, :journal) do
      def each = yield("by each")
      def close = journal.write("closed")
    end

    # Frames its parts itself, as Rack's own Chunked did.
    class Coded < Body
      def each = yield("5\r\nparts\r\n0\r\n\r\n")
    end

    # Removes its file when it is closed, as a body does that has a temporary one.
    class Removed < Body
      def close = super && File.delete(to_path)
    end

    def initialize = @journal = HttpJournal.new

    def call(env)
      path = { "/nul" => "a\0b", "/number" => 5 }.fetch(env["PATH_INFO"]) { |name| File.join(Dir.pwd, name) }
      body = { "coded" => Coded, "removed" => Removed }.fetch(env["QUERY_STRING"], Body).new(path, @journal)
      case env["QUERY_STRING"]
      when /\Alength=(\d+)\z/ then [200, { "content-length" => Regexp.last_match(1) }, body]
      when "part" then [206, { "content-length" => "7", "content-range" => "bytes 0-6/9" }, body]
      when "coded" then [200, { "transfer-encoding" => "chunked" }, body]
      when "status" then [304, {}, body]
      else [200, {}, body]
      end
    end
  end
end
