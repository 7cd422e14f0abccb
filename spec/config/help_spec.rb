# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/command_folder"
require_relative "../../lib/fastrack/cli/arguments"

RSpec.describe "The help of the fastrack command", once: "texts" do
  include CommandFolder

  it "begins with the commands, all of them, and has the options of a start after them" do
    help, status = fastrack("--help")
    expect([help, status]).to match([/\AUsage: fastrack \[options\] \[config.ru\]\n.*COMMAND.*^    check .*^    status .*^  -b, --bind URI.*--daemonize/m, 0])
    (Fastrack::Help::WORDS - ["phased-restart"]).each { |word| expect(help).to match(/^    #{word} /) }
  end

  [[], *Fastrack::Help::WORDS.map { |word| [word] }, %w[workers +1]].each do |command|
    it "of `#{["fastrack", *command].join(" ")}` has no line of more than 80 columns" do
      help, status = fastrack(*command, "--help")
      expect([help, status]).to match([/\AUsage: fastrack.*#{command.first}/m, 0])
      expect(help.lines(chomp: true).map(&:length).max).to be <= 80
    end
  end

  it "of a command for a running server shows its own options, and none of a start" do
    expect(fastrack("status", "--help").first).to include("--watch", "--pid FILE", "--control PATH").and(satisfy { |text| !text.match?(/--bind|--no-wait/) })
    expect(fastrack("-h", "restart").first).to include("--no-wait", "ready (USR2)").and(satisfy { |text| !text.match?(/--bind|--watch/) })
  end

  it "is near where a command is mistyped, and not where a file is missing" do
    expect(fastrack("sttatus")).to eq(["fastrack: there is no sttatus; did you mean status?\n", 1])
    expect(fastrack("stop.ru")).to eq(["fastrack: there is no stop.ru\n", 1])
  end
end
