# frozen_string_literal: true

require "fastrack"
require "fastrack/native"
require "fastrack/upgrade/handing"

# What a generation 0 of the app's user can hand to the master instead of settings.
RSpec.describe "Settings that generation 0 hands over", once: "messages to the master" do
  plain = Fastrack::PlainData

  # What the master reads of these bytes.
  def read(bytes)
    ours, theirs = Fastrack::Handing.pair
    theirs.to_io.write_nonblock(bytes)
    theirs.close
    found = nil
    nil until (found = ours.read)
    found
  ensure
    [ours, theirs].each { |one| one.close unless one.closed? }
  end

  def framed(bytes) = [bytes.bytesize].pack("N") + bytes.b

  it "are a Hash, or an error, whatever 20,000 messages have in them" do
    random = Random.new(3)
    letters = %w[n t f i1; i-7; i9999999999999999999999; d1.5; dx; s0; s1;a s3;a s99999999; a0; a1;n a2;n h0; h1;s1;an a99999; h99999; x] + ["\xff", "\0", ";", "s1;\e"]
    found = Array.new(20_000) do
      text = Array.new(1 + random.rand(6)) { letters.sample(random: random).b }.join
      read(random.rand(20).zero? ? random.bytes(1 + random.rand(30)) : framed(text))
    rescue Fastrack::Error, EOFError => e
      e.class
    end
    expect(found.uniq.reject { |one| one.is_a?(Hash) }).to contain_exactly(Fastrack::Error, EOFError)
    expect(found.grep(Hash)).not_to be_empty
  end

  it "have no text that is an order for a terminal, or another line of the log" do
    odd = "\e[2K\rfastrack: Fastrack is ready\n"
    data = read(framed(plain.dump("refused" => odd, "settings" => { odd => [odd, "/srv/\xE9t\xE9", "é"] })))
    escaped = '\e[2K\rfastrack: Fastrack is ready\n'
    expect(data).to eq("refused" => escaped, "settings" => { escaped => [escaped, "/srv/\xE9t\xE9", "é"] })
  end
end
