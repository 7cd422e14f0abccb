# frozen_string_literal: true

require "digest"
require_relative "../http_journal"

module HttpApps
  # Reads a body as it comes in, as the path says, and notes what it has got each time.
  class BodyReading
    # A response that begins before the body is there.
    Echo = Struct.new(:input) do
      def each
        yield "begun\n"
        while (line = input.gets)
          yield line
        end
      end
    end

    TYPE = { "content-type" => "text/plain" }.freeze

    def initialize = @journal = HttpJournal.new

    def call(env)
      _, what, *arguments = env["PATH_INFO"].split("/")
      @journal.write("#{Process.pid} #{env["PATH_INFO"]}")
      response = send("answer_#{what || "pid"}", env["rack.input"], env, *arguments)
      response.is_a?(Echo) ? [200, TYPE.dup, response] : [200, TYPE.dup, [response.to_s]]
    end

    private

    def answer_pid(*) = Process.pid
    def answer_kind(input, env) = [input.class.name, env["CONTENT_LENGTH"], env["HTTP_TRANSFER_ENCODING"]].inspect
    def answer_digest(input, _) = input.read.then { |body| [body.bytesize, body.encoding.name, Digest::MD5.hexdigest(body)].join(" ") }
    def answer_only(input, _, size) = input.read(size.to_i)
    def answer_echo(input, _) = Echo.new(input)

    # Each line is noted when it is there.
    def answer_lines(input, _)
      input.each { |line| @journal.write("line #{line.chomp}") }
      "lines"
    end

    # In pieces of that size, from read and readpartial by turns.
    def answer_pieces(input, _, size)
      digest = Digest::MD5.new
      total = 0
      while (piece = (total / size.to_i).odd? ? part(input, size.to_i) : input.read(size.to_i))
        raise "#{piece.bytesize} bytes" unless piece.bytesize.between?(1, size.to_i)

        digest << piece
        total += piece.bytesize
      end
      "#{total} #{digest}"
    end

    def part(input, size)
      input.readpartial(size)
    rescue EOFError
      nil
    end

    def answer_copy(input, _)
      into = StringIO.new(+"".b)
      IO.copy_stream(input, into)
      [into.string.bytesize, Digest::MD5.hexdigest(into.string)].join(" ")
    end

    # What IO#read says at the end, and with lengths and buffers of all kinds.
    def answer_contract(input, _)
      buffer = +"old"
      list = [input.read(0), input.read(2), input.read(3, buffer).dup, buffer.dup, input.gets, input.read, input.read]
      list.push(input.read(1), input.read(1, buffer), buffer, input.read(0), input.gets, input.each.to_a).inspect
    end

    # The size of a first part, once the file NAME is there.
    def answer_first(input, _, name) = input.readpartial(30).bytesize.tap { sleep 0.005 until File.exist?(name) }

    # Another thread writes the file `ticked` while this one waits for the client.
    def answer_background(input, _)
      thread = Thread.new { 10.times { sleep 0.001 } && File.write("ticked", "") }
      input.read.bytesize.to_s.tap { thread.join }
    end

    # What the reading raises, noted, and told unless the path says that it goes on.
    def answer_failing(input, _, *rest)
      input.read
      "read"
    rescue StandardError => e
      @journal.write("#{e.class} #{e.message}")
      rest == ["on"] ? "rescued" : raise
    end

    def answer_closed(input, _)
      input.read(1)
      input.close
      input.read
    rescue IOError => e
      "#{e.class} #{e.message} #{input.closed?}"
    end

    # In another thread, and when another request is answered.
    def answer_keep(input, _) = (@kept = input) && Thread.new { message { input.read(1) } }.value
    def answer_kept(*) = [@kept, @kept.instance_variable_get(:@source)].map { |one| message { one.read(1) } }.inspect

    def message
      yield
    rescue IOError => e
      e.message
    end

    def answer_twice(input, _)
      first = [input.gets, input.read(3)]
      input.rewind
      size = input.size
      second = [input.gets, input.read(3)]
      rest = input.read
      input.rewind
      whole = input.read
      [first == second, size == whole.bytesize, whole.end_with?(rest), Digest::MD5.hexdigest(whole)].join(" ")
    end
  end
end
