# frozen_string_literal: true

require "fastrack"
require "fastrack/native"
require "fastrack/process/line_reader"
require "fastrack/worker/message"
require "support/fake_babble"

RSpec.describe "Fastrack::Message", once: nil do
  message = Fastrack::Message
  kinds = Fastrack::MessageKinds

  it "is a value of the kinds and types that the sender may say, or none, whatever 100,000 lines have in them" do
    random = Random.new(1)
    babble = FakeBabble.new(random, 0)
    reader = Fastrack::LineReader.new(nil)
    found = Array.new(100_000) do
      role = message::KINDS.keys.sample(random: random)
      line = reader.lines("#{babble.line}\n").first
      parsed = message.parse(line, role) if line.is_a?(String)
      next if parsed.nil?

      types = message::KINDS[role].fetch(parsed.kind)
      expect(parsed.words.map(&:class)).to eq(types.map { |type| "1".public_send(type.value).class }), line
      expect(parsed.words.grep(Numeric)).to all(be < 1e15), line
      parsed.kind
    end
    # Each kind came, but those that molds take as orders.
    expect(kinds.constants.map { |name| kinds.const_get(name) } - found.uniq).to contain_exactly(*%w[fork start event finish lend stop stats])
  end

  it "has the words of a message as values" do
    expect([message.parse("lingering 3 4", :worker), message.parse("forbid reforks app.rb:3 in x", :first), message.parse("stop INT", :promoted), message.parse("end all 2.5", :master),
            message.parse('stats {"open":7,"end":null}', :proxy)].map(&:to_a))
      .to eq([["lingering", [3, 4]], ["forbid reforks", ["app.rb:3 in x"]], ["stop", ["INT"]], ["end all", [2.5]], ["stats", ['{"open":7,"end":null}']]])
  end

  { worker: ["mold", "forked 1 2", "started", "memory 1 2", "stop TERM", "restart", "ready and quit", "known", "go"], first: ["ready", "lingering 1 1", "ending", "promote"],
    promoted: ["started", "memory 1 2", "restart"], new_master: %w[known ending restart], old_master: %w[ready stop],
    proxy: ["mold", "forked 1 2", "stats", "stats {", "stats []", 'stats {"a":"b"}', 'stats {"a":1,}', 'stats {"a":1"b":2}', 'stats {"a":01}', 'stats {"a":{}}', "lingering", "lingering 1", "applied x", "stop TERM"], master: ["ready", "mold", "stop TERM"] }.each do |role, lines|
    it "has nothing that is another sender's, from #{role}" do
      expect(lines.map { |line| message.parse(line, role) }).to all(be_nil)
    end
  end
end
