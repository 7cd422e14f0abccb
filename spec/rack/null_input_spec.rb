# frozen_string_literal: true

require_relative "../../lib/fastrack/rack/input"

RSpec.describe "rack.input without a body" do
  let(:input) { Fastrack::NullInput::SHARED }

  # All that an app can see of it.
  def state
    [input.read, input.read(1), input.gets, input.getc, input.each.to_a, input.pos, input.lineno, input.eof?, input.closed?,
     input.size, input.string, input.external_encoding, input.rewind]
  end

  it "A11 is an open, empty, binary, rewindable StringIO" do
    expect(input).to be_a(StringIO)
    expect(state).to eq(["", nil, nil, nil, [], 0, 0, true, false, 0, "", Encoding::BINARY, 0])
  end

  it "A12 empties the buffer that it is given, as IO#read does" do
    buffer = +"left over"
    expect([input.read(nil, buffer), buffer]).to eq(["", ""])
  end

  # What apps and middleware do to an input, rightly or not.
  { "close" => :close.to_proc, "close_read" => :close_read.to_proc,
    "ungetc" => ->(io) { io.ungetc("x") }, "ungetbyte" => ->(io) { io.ungetbyte(120) },
    "pos=" => ->(io) { io.pos = 7 }, "seek" => ->(io) { io.seek(7) }, "lineno=" => ->(io) { io.lineno = 7 },
    "string=" => ->(io) { io.string = "x" }, "reopen" => ->(io) { io.reopen(+"x") },
    "set_encoding" => ->(io) { io.set_encoding(Encoding::UTF_8) }, "set_encoding_by_bom" => :set_encoding_by_bom.to_proc,
    "binmode" => :binmode.to_proc, "write" => ->(io) { io.write("x") }, "<<" => ->(io) { io << "x" },
    "truncate" => ->(io) { io.truncate(7) }, "string <<" => ->(io) { io.string << "x" }, "dup, then close" => ->(io) { io.dup.close },
    "freeze" => :freeze.to_proc, "clone, then read" => ->(io) { io.clone.read } }.each do |what, deed|
    it "A11 is none the worse for #{what}" do
      before = state
      begin
        deed.call(input)
      rescue IOError, FrozenError
        # What only a writable one allows may be refused.
      end
      expect(state).to eq(before)
    end
  end
end
