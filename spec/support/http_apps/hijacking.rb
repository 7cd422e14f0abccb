# frozen_string_literal: true

require_relative "../http_journal"

module HttpApps
  # Takes the connection over in the way that the path names.
  class Hijacking
    Body = Struct.new(:journal, :name) do
      def each = yield("never sent")
      def close = journal.write("#{name} closed")
    end

    RESPONSE = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"

    def initialize = @journal = HttpJournal.new

    def call(env)
      path = env["PATH_INFO"]
      case path
      when %r{\A/full/} then full(env, path.delete_prefix("/full/"))
      when %r{\A/partial/} then partial(path.delete_prefix("/partial/"))
      when "/keep" then @kept = env["rack.hijack"] and [200, {}, ["kept"]]
      when "/thread" then [200, {}, [Thread.new { error_of(env["rack.hijack"]) }.value]]
      when "/begun" then [200, {}, Enumerator.new { |parts| parts << "one," << error_of(env["rack.hijack"]) }]
      else [200, {}, ["hijack? #{env["rack.hijack?"]}"]]
      end
    end

    private

    def full(env, way)
      io = env["rack.hijack"].call
      case way
      when "at-once" then answer(io, io.class.name)
      when "twice" then answer(io, [env["rack.hijack"].call, env["rack.hijack_io"]].map { |one| one.equal?(io) }.inspect)
      # What the client has sent by now, and what it sends until it ends.
      when "echo" then later { io.write(RESPONSE) && answer(io, io.read.upcase, "") }
      when "nonblock" then later { io.write(RESPONSE) && io.wait_readable && answer(io, io.read_nonblock(100).upcase, "") }
      # When another request has said so.
      when "later" then later { (sleep 0.005 until File.exist?("go")) || answer(io, "later") }
      when "raise" then answer(io, "before") || raise("after the hijack")
      # For longer than the watchdog lets it.
      when "hang" then [io.write("mine"), env["fastrack.timeout"].call(0.2), sleep]
      when "nil" then return answer(io, "nil")
      when "number" then return answer(io, "number") || 5
      end
      [way == "at-once" ? 200 : -1, {}, Body.new(@journal, "full/#{way}")]
    end

    def later(&block) = Thread.new(&block)
    def answer(io, text, head = RESPONSE)
      io.write(head, text)
      io.close
    end

    def partial(way)
      headers = { "x-own" => "yes", "rack.hijack" => callable(way) }
      headers["upgrade"] = "echo" if way == "switch"
      [way == "switch" ? 101 : 200, headers, Body.new(@journal, "partial/#{way}")]
    end

    def callable(way)
      lambda do |io|
        @journal.write("partial/#{way} called")
        raise "in the hijack" if way == "raise"

        answer(io, way == "switch" ? io.readpartial(100).upcase : "partial #{io.class}", "")
      end
    end

    def error_of(callable)
      callable.call
      "nothing was raised"
    rescue IOError => e
      "#{e.class}: #{e.message}"
    end
  end
end
