# frozen_string_literal: true

require_relative "../../lib/fastrack/cli/arguments"
require_relative "../../lib/fastrack/tune/command"

RSpec.describe "Arguments of the fastrack command that mean nothing", once: "the parsing of words" do
  include CommandFolder

  odd = ["", " ", "=", "=x", ":", "-", "--", "\t", "\e[31m", "\xff", "\xE9t\xE9.rb", "0", "-1", "9" * 400, "1e999", "nan", "~nobody-of-that-name/", "x" * 5000, "[::", "unix://", "tcp://:"]

  # What ends a command otherwise than by a line is raised here.
  def parsed(words)
    yield words
    true
  rescue Fastrack::Error => e
    e.message.lines.size == 1
  end

  # Each flag once: with the first command that has it.
  it "are an option's value or one line, whatever flag is before them" do
    flags = Fastrack::Arguments.parsers.flat_map do |command, parser|
      switches = parser.top.list.grep(OptionParser::Switch)
      switches.map { |one| [[command, *("+1" if command == "workers")].reject(&:empty?), (one.short.map { |flag| flag[0, 2] } + one.long).first] }
    end
    bad = flags.uniq(&:last).product(odd).reject do |(command, flag), value|
      parsed([*command, flag, value]) { |words| Fastrack::Arguments.new(words).overrides("localhost") }
    end
    expect([bad, flags.uniq(&:last).size > 30]).to eq([[], true])
  end

  it "are one line where they are options' names, commands or files" do
    bad = odd.reject do |value|
      [[value], ["-O", "#{value}=1"], ["-O", "MaxWorkers=#{value}"], ["workers", value], ["status", value], ["check", value]].all? do |words|
        parsed(words) { Fastrack::Arguments.new(words) }
      end
    end
    expect(bad).to eq([])
  end

  it "are one line for `fastrack tune`, too" do
    flags = Fastrack::Tune::Command.new([]).parser.top.list.grep(OptionParser::Switch).flat_map(&:long)
    expect(flags.product(odd).reject { |words| parsed(words) { Fastrack::Tune::Command.new(words) } }).to eq([])
  end

  it "end the command with one line and status 1" do
    [["-O", ""], ["-O", "=1"], ["-c", ""], ["\e[31m", "a"], ["-O", "\e[31m"], [""], ["stop", "--control", ""], ["workers", ""]].each do |words|
      output, status = fastrack(*words)
      expect([words, output.lines.size, output.match?(/\Afastrack: [[:print:]]+\n\z/), status]).to eq([words, 1, true, 1])
    end
  end
end
