# frozen_string_literal: true

require "tempfile"

module Fastrack
  # rack.input of a request whose body is still coming in when the app is called (StreamBody=true). It reads from the
  # client, and waits for it while other Ruby threads run.
  #
  # All of its methods raise EOFError when the client goes before the end of the body, and IOError when it breaks a rule
  # or makes longer pauses than BodyTimeout; also after #close, after the request has been answered, and in any other
  # thread than the one that answers it. Each but readpartial is as IO has it, in binary.
  class StreamedBody
    # Bytes that are asked for at once where nobody says how many are wanted.
    PIECE = 65_536

    # @param source [BodySource] with a method read(most) that returns what there is, or nil at the end
    # @param rack3 [Boolean] Rack 2 wants an input that can be rewound
    def self.call(source, rack3)
      rack3 ? new(source) : RewindableStreamedBody.new(source)
    end

    def initialize(source)
      @source = source
      @line = +"".b
      @closed = false
    end

    # @param length [Integer, nil] waits until so many bytes are there, or the end; nil: until the end
    # @param buffer [String, nil] gets the bytes, too
    # @return [String, nil] nil at the end, if a length other than 0 was given
    def read(length = nil, buffer = nil)
      raise ArgumentError, "negative length #{length} given" if length&.negative?

      check_open
      data = +"".b
      while length.nil? || data.bytesize < length
        piece = take(length ? length - data.bytesize : PIECE) or break
        data << piece
      end
      hand_out(data, buffer, length&.positive? && data.empty?)
    end

    # @param most [Integer] waits for a first byte, and returns what there is by then, this much at most
    # @raise [EOFError] at the end, too
    def readpartial(most, buffer = nil)
      raise ArgumentError, "negative length #{most} given" if most.negative?

      check_open
      data = most.zero? ? +"".b : take(most)
      hand_out(data || +"", buffer, data.nil?) or raise EOFError, "end of file reached"
    end

    # @return [String, nil] the next line, with its end; nil at the end of the body
    def gets
      check_open
      searched = 0
      until (index = @line.index("\n", searched))
        searched = @line.bytesize
        piece = more(PIECE) or break
        @line << piece
      end
      size = index ? index + 1 : @line.bytesize
      @line.slice!(0, size) if size.positive?
    end

    # @yieldparam line [String]
    def each
      return enum_for(:each) unless block_given?

      while (line = gets)
        yield line
      end
      self
    end

    # What has not been read by then is the server's concern.
    def close
      @closed = true
      @line.clear
      nil
    end

    def closed?
      @closed
    end

    # For what is done to any input; this one is binary anyway.
    def binmode
      self
    end

    private

    def check_open
      raise IOError, "closed stream" if @closed
    end

    def hand_out(data, buffer, ended)
      data = buffer.replace(data) if buffer
      ended ? nil : data
    end

    # The next bytes: first what gets has left.
    def take(most)
      @line.empty? ? more(most) : @line.slice!(0, most)
    end

    def more(most)
      @source.read(most)
    end
  end

  # The same with a copy in a file, to be read again.
  class RewindableStreamedBody < StreamedBody
    def initialize(source)
      super
      @file = nil
      @kept = 0
      @at = 0
    end

    # @return [Integer] 0
    def rewind
      check_open
      @line.clear
      @at = 0
    end

    # Waits for the whole body.
    #
    # @return [Integer] bytes
    def size
      check_open
      nil while receive(PIECE)
      @kept
    end

    def close
      @file&.close
      @file = nil
      super
    end

    private

    def more(most)
      data = @at < @kept ? @file.pread([most, @kept - @at].min, @at) : receive(most)
      @at += data.bytesize if data
      data
    end

    # Takes more from the client, and keeps it.
    def receive(most)
      data = @source.read(most) or return
      @file ||= Tempfile.new("fastrack").tap(&:unlink).tap(&:binmode)
      @file.pwrite(data, @kept)
      @kept += data.bytesize
      data
    end
  end
end
