# frozen_string_literal: true

require "stringio"
require "tempfile"
require_relative "temporary_folder"

module Fastrack
  # rack.input of all requests without a body. They share one object, so nothing that an app does may change it: it stays
  # open, empty, binary and at its start. (The Rack SPEC wants `gets`, `each`, `read` and `rewind`; apps call all methods of
  # StringIO.)
  class NullInput < StringIO
    def initialize
      # A frozen string makes it read-only.
      super("".b.freeze)
      StringIO.instance_method(:set_encoding).bind_call(self, Encoding::BINARY)
    end

    # These would change the object.
    %i[binmode freeze reopen set_encoding].each do |name|
      define_method(name) { |*, **| self }
    end

    # These too; they return nil.
    %i[close close_read close_write set_encoding_by_bom ungetbyte ungetc].each do |name|
      define_method(name) { |*| nil }
    end

    def seek(*) = 0

    # Setters.
    %i[pos= lineno= string=].each do |name|
      define_method(name) { |value| value }
    end

    # A copy would be just as empty.
    def dup = self

    def clone(**) = self

    SHARED = new
    private_class_method :new
  end

  # rack.input for a large request body, which the engine has written to a temporary file.
  #
  # @api private
  module SpooledBody
    # @param descriptor [Integer] an open file without a name, at its start; this method closes it
    # @return [Tempfile] the same file; binary, and already unlinked, so that a crash leaves nothing behind
    def self.call(descriptor)
      file = File.for_fd(descriptor, "r+b")
      whole = wrap(file)
    ensure
      # Another thread of the app's may have raised in this one.
      file&.close unless whole
    end

    # Tempfile.new would make another file, for which there may be no folder any more. This is what Tempfile#unlink leaves.
    def self.wrap(file)
      Tempfile.allocate.tap do |tempfile|
        tempfile.__setobj__(file)
        values = { :@unlinked => true, :@mode => File::RDWR, :@opts => {}, :@tmpfile => file, :@finalizer_manager => finalizer }
        values.each { |name, value| tempfile.instance_variable_set(name, value) }
      end
    end
    private_class_method :wrap

    # In newer Rubies copies of a Tempfile share one, which removes the file when the last of them is gone. This file has no name.
    def self.finalizer = (Tempfile::FinalizerManager.new(nil).tap { |manager| manager.unlinked = true } if defined?(Tempfile::FinalizerManager))
    private_class_method :finalizer
  end

  # rack.input when the app is called before the whole body has arrived (StreamBody=true). It reads from the client; other
  # Ruby threads run while it waits.
  #
  # All methods raise EOFError when the client leaves before the end of the body. They raise IOError when the body is
  # malformed or pauses longer than BodyTimeout; after #close; after the response; and on any other thread than that of the
  # request. They work like IO's, in binary.
  class StreamedBody
    # Bytes to ask for when the app does not say how many.
    PIECE = 65_536

    # @param source [BodySource] its read(most) returns what has arrived, or nil at the end
    # @param rack3 [Boolean] Rack 2 wants a rewindable input
    def self.call(source, rack3) = rack3 ? new(source) : RewindableStreamedBody.new(source)

    def initialize(source)
      @source = source
      @line = +"".b
      @closed = false
    end

    # @param length [Integer, nil] bytes to wait for; nil: all
    # @param buffer [String, nil] also receives the bytes
    # @return [String, nil] nil at the end, if length is more than 0
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

    # Waits for at least one byte.
    #
    # @param most [Integer] bytes to return at most
    # @raise [EOFError] also at the end
    def readpartial(most, buffer = nil)
      raise ArgumentError, "negative length #{most} given" if most.negative?

      check_open
      data = most.zero? ? +"".b : take(most)
      hand_out(data || +"", buffer, data.nil?) or raise EOFError, "end of file reached"
    end

    # @return [String, nil] the next line, with its newline; nil at the end of the body
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

    # The server discards the rest.
    def close
      @closed = true
      @line.clear
      nil
    end

    def closed? = @closed

    # It always is.
    def binmode = self

    private

    def check_open
      raise IOError, "closed stream" if @closed
    end

    def hand_out(data, buffer, ended)
      data = buffer.replace(data) if buffer
      ended ? nil : data
    end

    # The next bytes, of which #gets may have read some already.
    def take(most) = @line.empty? ? more(most) : @line.slice!(0, most)

    def more(most) = @source.read(most)
  end

  # With a copy in a temporary file, to be read again.
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

    # Reads more from the client, and keeps a copy.
    def receive(most)
      data = @source.read(most) or return
      @file ||= Tempfile.new("fastrack", TemporaryFolder.path, binmode: true).tap(&:unlink)
      @file.pwrite(data, @kept)
      @kept += data.bytesize
      data
    end
  end
end
