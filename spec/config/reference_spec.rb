# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/command_folder"
require_relative "../../lib/fastrack/cli/reference"

RSpec.describe "The manual page, the shell completions and the types", once: "texts, and bash" do
  include CommandFolder

  # The flags that `--help` names.
  def flags(command) = fastrack(*command, "--help").first.lines.grep(/^ {2,6}-/).flat_map { |line| line[/\A *-.*?(?=  |$)/].scan(/(?<![\w-])--?[\w-]+/) }

  it "have in the page each command, each option and each word, without a warning of man" do
    page, status = fastrack("man")
    expect(status).to eq(0)
    plain = page.gsub("\\-", "-").gsub(/\\f./, "")
    Fastrack::Help::WORDS.each { |word| expect(plain).to match(/^    #{word} |^\.SH FASTRACK #{word.upcase}$/) }
    named = ["", *Fastrack::Help::COMMANDS.keys, "tune"].flat_map { |command| flags([command].reject(&:empty?)) }.uniq
    expect([named.size, named.reject { |flag| plain.match?(/(?<![\w-])#{flag}(?![\w-])/) }]).to match([be > 30, []])
    expect(Fastrack::Option::ALL.reject { |option| plain.include?("#{option.word}, #{option.name}\n") }).to eq([])
    next unless system("man", "--version", %i[out err] => File::NULL)

    File.write("#{@dir}/fastrack.1", page)
    output, warnings, = Open3.capture3({ "MANWIDTH" => "80" }, "man", "--warnings", "-l", "#{@dir}/fastrack.1")
    expect([output[/\S.*$/], warnings]).to match([/\AFASTRACK\(1\)/, ""])
  end

  it "complete in bash commands and options, those of a command alone, and shells" do
    script, = fastrack("completion", "bash")
    complete = lambda do |*words|
      asked = "#{script}\nCOMP_WORDS=(fastrack #{words.map(&:shellescape).join(" ")}) COMP_CWORD=#{words.size}; _fastrack; echo \"${COMPREPLY[@]}\""
      output, status = Open3.capture2e("bash", "-u", "-c", asked)
      expect(status).to be_success, output
      output.split
    end
    expect([complete.call("re"), complete.call("--daem")]).to eq([%w[reload restart refork], %w[--daemonize]])
    expect(complete.call("status", "--")).to match_array(flags(["status"]).grep(/\A--/))
    expect([complete.call("-c", "conf"), complete.call("completion", "")]).to eq([[], %w[bash fish zsh]])
    expect(fastrack("completion", "csh")).to eq(["fastrack: completion needs one of bash, fish, zsh\n", 1])
  end

  it "name in sig/fastrack.rbs what there is, and each word of a configuration file" do
    require "fastrack"
    owner = "Fastrack"
    methods = File.readlines("#{Server::ROOT}/sig/fastrack.rbs").filter_map do |line|
      owner = "Fastrack::#{Regexp.last_match(1)}" if line =~ /^  class (\w+)/
      [Object.const_get(owner), Regexp.last_match(1), Regexp.last_match(2)] if line =~ /^ +def (self\.)?(\w+\??):/ && Regexp.last_match(2) != "call"
    end
    missing = methods.reject { |type, single, name| single ? type.respond_to?(name) : type.method_defined?(name) || type.private_method_defined?(name) }
    expect([methods.size > 70, missing]).to eq([true, []])
    words = methods.filter_map { |type, _, name| name.to_sym if type == Fastrack::ConfigFile }
    expect(Fastrack::Option::BY_WORD.keys - words).to eq([:config_file])
  end
end
