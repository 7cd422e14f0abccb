# frozen_string_literal: true

require_relative "../http_journal"

module HttpApps
  # Reads a body while it comes in and takes the connection over, in the order that the path names. The conversation
  # after that: the body that was read is sent back, then in upper case whatever the client says until it ends.
  class BodyHijacking
    RESPONSE = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"

    def initialize
      @journal = HttpJournal.new
    end

    def call(env)
      @journal.write("#{Process.pid} #{env["PATH_INFO"]}")
      _, way, size = env["PATH_INFO"].split("/")
      send("answer_#{way || "pid"}", env, size)
    end

    private

    def answer_pid(*)
      [200, {}, [Process.pid.to_s]]
    end

    # So many bytes of the body before, and all the others after.
    def answer_full(env, size)
      first = size ? env["rack.input"].read(size.to_i).to_s : ""
      io = env["rack.hijack"].call
      io.write(RESPONSE)
      converse(io, first + env["rack.input"].read)
      [-1, {}, []]
    end

    # Without a look at the body.
    def answer_unread(env, _)
      io = env["rack.hijack"].call
      io.write(RESPONSE)
      converse(io, "")
      [-1, {}, []]
    end

    # What the taking over raises is noted, and the app fails.
    def answer_failing(env, _)
      env["rack.hijack"].call
    rescue StandardError => e
      @journal.write("#{e.class} #{e.message}")
      raise
    end

    def answer_partial(env, _)
      [200, { "rack.hijack" => ->(io) { converse(io, env["rack.input"].read) } }, []]
    end

    def answer_switch(env, _)
      [101, { "upgrade" => "echo", "rack.hijack" => ->(io) { converse(io, env["rack.input"].read) } }, []]
    end

    # A streaming body (Rack 3) that answers each line when it is there.
    def answer_streaming(env, _)
      [200, {}, ->(stream) { stream_lines(env["rack.input"], stream) }]
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
    end
  end
end
