# frozen_string_literal: true

require_relative "../http_journal"

module HttpApps
  # Reads a body while it comes in and takes the connection over, in the order that the path names. The conversation
  # after that: the body that was read is sent back, then in upper case whatever the client says until it ends.
  class BodyHijacking
    RESPONSE = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"

    def initialize = @journal = HttpJournal.new

    def call(env)
      @journal.write("#{Process.pid} #{env["PATH_INFO"]}")
      _, way, size = env["PATH_INFO"].split("/")
      input = env["rack.input"]
      rest = ->(io) { converse(io, input.read) }
      case way
      when "full" then full(env, input, size.to_i)
      when "unread" then converse(env["rack.hijack"].call.tap { |io| io.write(RESPONSE) }, "")
      when "failing" then failing(env)
      when "partial" then [200, { "rack.hijack" => rest }, []]
      when "switch" then [101, { "upgrade" => "echo", "rack.hijack" => rest }, []]
      # A streaming body (Rack 3) that answers each line when it is there.
      when "streaming" then [200, {}, ->(stream) { stream_lines(input, stream) }]
      else [200, {}, [Process.pid.to_s]]
      end
    end

    private

    # So many bytes of the body before, and all the others after.
    def full(env, input, size)
      first = size.zero? ? "" : input.read(size).to_s
      io = env["rack.hijack"].call
      io.write(RESPONSE)
      converse(io, first + input.read)
    end

    # What the taking over raises is noted, and the app fails.
    def failing(env)
      env["rack.hijack"].call
    rescue StandardError => e
      @journal.write("#{e.class} #{e.message}")
      raise
    end

    def stream_lines(input, stream)
      stream.write("begun\n")
      while (line = input.gets)
        stream.write(line.upcase)
      end
      stream.close
    end

    def converse(io, body)
      io.write(body, "|")
      Thread.new do
        io.write(io.read.upcase)
        io.close
      end
      [-1, {}, []]
    end
  end
end
