# frozen_string_literal: true

require "stringio"
require "tempfile"
require_relative "temporary_folder"

module Fastrack
  # rack.input of all requests without a body. Requests share one object, so an app must not be able to change it: the object stays open,
  # empty, binary and at its start. (The Rack SPEC wants `gets`, `each`, `read` and `rewind`; apps call all methods of StringIO.)
  class NullInput < StringIO
    def initialize
      # A frozen string makes it read-only.
      super("".b.freeze)
      StringIO.instance_method(:set_encoding).bind_call(self, Encoding::BINARY)
    end

    # Methods of StringIO that would change the object return self.
    %i[binmode freeze reopen set_encoding].each do |name|
      define_method(name) { |*, **| self }
    end

    # Other methods that would change the object return nil.
    %i[close close_read close_write set_encoding_by_bom ungetbyte ungetc].each do |name|
      define_method(name) { |*| nil }
    end

    def seek(*) = 0

    # Setters change nothing.
    %i[pos= lineno= string=].each do |name|
      define_method(name) { |value| value }
    end

    # A copy would be just as empty.
    def dup = self

    def clone(**) = self

    SHARED = new
    private_class_method :new
  end

  # rack.input for a large request body in a temporary file of the engine.
  #
  # @api private
  module SpooledBody
    # @param descriptor [Integer] an open file without a name, at its start; this method closes it
    # @return [Tempfile] the same file; binary and already unlinked, so that a crash leaves no file
    def self.call(descriptor)
      file = File.for_fd(descriptor, "r+b")
      whole = wrap(file)
    ensure
      # A thread of the app may have raised an exception in this thread.
      file&.close unless whole
    end

    # Makes a Tempfile in the state after Tempfile#unlink. Tempfile.new would make another file, and its folder may be missing.
    def self.wrap(file)
      Tempfile.allocate.tap do |tempfile|
        tempfile.__setobj__(file)
        values = { :@unlinked => true, :@mode => File::RDWR, :@opts => {}, :@tmpfile => file, :@finalizer_manager => finalizer }
        values.each { |name, value| tempfile.instance_variable_set(name, value) }
      end
    end
    private_class_method :wrap

    # In newer Rubies copies of a Tempfile share a FinalizerManager, which removes the file after the last copy. This file has no name to
    # remove.
    def self.finalizer = (Tempfile::FinalizerManager.new(nil).tap { |manager| manager.unlinked = true } if defined?(Tempfile::FinalizerManager))
    private_class_method :finalizer
  end

  # rack.input when the app is called before the whole body has arrived (StreamBody=true). It reads from the client. Other Ruby threads run
  # meanwhile.
  #
  # All methods raise EOFError when the client leaves before the end of the body. They raise IOError when the body is malformed or pauses
  # longer than BodyTimeout; after #close; after the response; and on any other thread than the request's. The methods work like IO's, in
  # binary.
  class StreamedBody
    # Bytes to ask for when the app does not say how many.
    PIECE = 65_536

    # @param source [BodySource] its read(most) returns bytes that have arrived, or nil at the end
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

    # Closes the input. The server discards the rest of the body.
    def close
      @closed = true
      @line.clear
      nil
    end

    def closed? = @closed

    # The input is always binary.
    def binmode = self

    private

    def check_open
      raise IOError, "closed stream" if @closed
    end

    def hand_out(data, buffer, ended)
      data = buffer.replace(data) if buffer
      ended ? nil : data
    end

    # The next bytes, first those that #gets has read too far.
    def take(most) = @line.empty? ? more(most) : @line.slice!(0, most)

    def more(most) = @source.read(most)
  end

  # A StreamedBody with a copy in a temporary file, so that the app can read it again.
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
