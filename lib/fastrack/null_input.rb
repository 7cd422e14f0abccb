# frozen_string_literal: true

require "stringio"

module Fastrack
  # rack.input of every request without a body. All requests of a worker share the one object, so whatever an app or a
  # middleware does to it must leave it as it was: open, empty, binary and at its start. (The Rack SPEC wants `gets`,
  # `each`, `read` and `rewind`; apps also call what else a StringIO has.)
  class NullInput < StringIO
    def initialize
      # Frozen, which makes it read-only too.
      super("".b.freeze)
      StringIO.instance_method(:set_encoding).bind_call(self, Encoding::BINARY)
    end

    # Would change the object for the requests to come.
    %i[binmode reopen set_encoding].each do |name|
      define_method(name) { |*, **| self }
    end

    # Likewise; without a value to give.
    %i[close close_read close_write set_encoding_by_bom ungetbyte ungetc].each do |name|
      define_method(name) { |*| nil }
    end

    # There is nowhere to go.
    def seek(*)
      0
    end

    # Setters, whose value Ruby does not use.
    %i[pos= lineno= string=].each do |name|
      define_method(name) { |value| value }
    end

    # As good as a copy, which would be just as empty.
    def dup
      self
    end

    def clone(**)
      self
    end

    # The one object.
    SHARED = new
    private_class_method :new
  end
end
