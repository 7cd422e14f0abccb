# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/command_folder"
require_relative "../../bin/lib/gems/reference"

RSpec.describe "The manual page, the shell completions and the types", once: "texts, and bash" do
  include CommandFolder

  # The flags that `--help` names.
  def flags(command) = fastrack(*command, "--help").first.lines.grep(/^ {2,6}-/).flat_map { |line| line[/\A *-.*?(?=  |$)/].scan(/(?<![\w-])--?[\w-]+/) }

  # One of the files that `rake reference` makes.
  def made(name)
    Fastrack::Reference.write(@dir)
    File.read(path(name))
  end

  it "are made by `rake reference`, and are in the gem" do
    skip "no rake" unless system(RbConfig.ruby, "-S", "rake", "--version", %i[out err] => File::NULL)

    copy = path("copy")
    FileUtils.mkdir_p(copy)
    %w[Rakefile rhebok-rs.gemspec lib bin ext].each { |name| FileUtils.ln_s(File.join(Server::ROOT, name), copy) }
    output, status = Open3.capture2e(RbConfig.ruby, "-S", "rake", "reference", chdir: copy)
    expect(status).to be_success, output
    names = Fastrack::Reference::FILES.keys
    expect(names.map { |name| File.read(File.join(copy, name)) }).to eq(names.map { |name| made(name) })
    files = IO.popen([RbConfig.ruby, "-e", "puts Gem::Specification.load('rhebok-rs.gemspec').files"], chdir: copy, &:readlines).map(&:chomp)
    expect([names - files, files.grep(/reference/)]).to eq([[], []])
  end

  it "have in the page each command, each option and each word, without a warning of man" do
    page = made("man/fastrack.1")
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
    script = made("completions/fastrack.bash")
    complete = lambda do |*words|
      asked = "#{script}\nCOMP_WORDS=(fastrack #{words.map(&:shellescape).join(" ")}) COMP_CWORD=#{words.size}; _fastrack; echo \"${COMPREPLY[@]}\""
      output, status = Open3.capture2e("bash", "-u", "-c", asked)
      expect(status).to be_success, output
      output.split
    end
    expect([complete.call("re"), complete.call("--daem")]).to eq([%w[reload restart refork], %w[--daemonize]])
    expect(complete.call("status", "--")).to match_array(flags(["status"]).grep(/\A--/))
    expect(complete.call("-c", "conf")).to eq([])
    expect([made("completions/fastrack.zsh"), made("completions/fastrack.fish")]).to match([end_with(script), /-n '__fish_seen_subcommand_from status' -l watch$/])
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
