# frozen_string_literal: true

require "fastrack/process/line_reader"

RSpec.describe "Fastrack::LineReader", once: nil do
  reader = Fastrack::LineReader

  def pipe = IO.pipe.each { |one| (@pipes ||= []) << one }

  after { @pipes&.each(&:close) }

  # @return [Array] all that is read until the end
  def read_all(lines)
    found = []
    while (some = lines.read)
      found.concat(some)
    end
    found
  end

  it "reads the same lines in whatever pieces the bytes come" do
    200.times do |seed|
      random = Random.new(seed)
      lines = Array.new(random.rand(20)) { "x" * random.rand(random.rand(4).zero? ? 10_000 : 50) }
      expected = lines.map { |line| line.size < reader::PIECE ? line : reader::TOO_LONG }
      bytes = lines.map { |line| "#{line}\n" }.join
      found = reader.new(nil).then do |one|
        pieces = []
        pieces << bytes.slice!(0, 1 + random.rand(reader::PIECE)) until bytes.empty?
        pieces.flat_map { |piece| one.lines(piece) }
      end
      expect(found).to eq(expected), "seed #{seed}"
    end
  end

  it "reads a piece at a time, and says when nothing has come and when the end has" do
    input, output = pipe
    lines = reader.new(input)
    expect(lines.read).to eq([])
    output.write("#{"a" * 4000}\n#{"b" * 4000}\n")
    expect(lines.read.map(&:size)).to eq([4000])
    expect(lines.read.map(&:size)).to eq([4000])
    output.write("no end of the line")
    output.close
    expect([lines.read, lines.read]).to eq([[], nil])
  end

  it "keeps nothing of a line without an end, and reads on behind it" do
    input, output = pipe
    writer = Thread.new do
      2000.times { output.write("x" * 10_000) }
      output.write("\nready\n")
      output.close
    end
    expect(read_all(reader.new(input))).to eq([reader::TOO_LONG, "ready"])
    writer.join
  end

  it "gives lines that are valid text without an order for a terminal, and leaves printable text as it is" do
    expect(reader.new(nil).lines("\e[2K\rfastrack: Fastrack is ready\a\u0085\u202e\u2028\xff\xc3(\0é 日本 \\n\n".b))
      .to eq(['\e[2K\rfastrack: Fastrack is ready\a\u0085\u202E\u2028\xFF\xC3(\x00é 日本 \n'])
  end
end
