# frozen_string_literal: true

require "tmpdir"
require "fastrack"
require "fastrack/configuration"
require "fastrack/master"

# The documentation against the code: what can be compared is, so that it stays true.
RSpec.describe "the documentation" do
  root = File.expand_path("..", __dir__)
  pages = Dir.glob(%w[*.md docs/**/*.md], base: root).sort
  text = ->(page) { File.read(File.join(root, page), encoding: "UTF-8") }

  # The anchor that a heading gets on code hosting sites.
  anchor = ->(heading) { heading.downcase.gsub(/[^\p{Alnum}\- ]/, "").tr(" ", "-") }
  anchors = ->(page) { text.call(page).scan(/^\#{1,6} (.+)$/).flatten.map(&anchor) }

  # The cells of the rows of a page's tables.
  rows = ->(page) { text.call(page).lines.grep(/\A\|/).map { |line| line.strip[1..-2].split(/(?<!\\)\|/).map(&:strip) } }

  # Blocks of code of a language.
  blocks = ->(page, language) { text.call(page).scan(/^```#{language}\n(.*?)^```$/m).flatten }

  it "has all of its pages" do
    expect(pages).to include("README.md", "CHANGELOG.md", *%w[benchmark connections deploy internals migrate security signals tune].map { |name| "docs/#{name}.md" })
  end

  pages.each do |page|
    describe page do
      it "has links to files and headings that exist" do
        broken = text.call(page).scan(/\]\(([^)\s]+)\)/).flatten.grep_v(%r{\Ahttps?://}).reject do |link|
          file, heading = link.split("#", 2)
          target = file.empty? ? page : File.join(File.dirname(page), file).delete_prefix("./")
          File.exist?(File.join(root, target)) && (heading.nil? || anchors.call(File.expand_path(target, "/")[1..]).include?(heading))
        end
        expect(broken).to eq([])
      end

      it "names files of this repository that exist" do
        named = text.call(page).scan(%r{(?<![\w/])((?:lib|crates|ext|bin|bench|spec|examples|docs)/[\w./-]*\w)}).flatten.uniq
        # The app's own commands, and what a run of the benchmark writes.
        missing = named.reject { |path| File.exist?(File.join(root, path)) } - %w[bin/rails bench/results bench/results/system.json bench/results/system]
        expect(missing).to eq([])
      end

      it "has Ruby code that compiles" do
        blocks.call(page, "ruby").each { |code| expect { RubyVM::InstructionSequence.compile(code) }.not_to raise_error }
      end
    end
  end

  describe "the options' table in the README" do
    table = rows.call("README.md").select { |cells| cells.size == 5 && cells.first.start_with?("`") }.to_h { |cells| [cells.first.delete("`").to_sym, cells] }

    it "has every option, and no other, in the code's order" do
      expect(table.keys).to eq(Fastrack::Option::ALL.map(&:name))
    end

    Fastrack::Option::ALL.each do |option|
      it "has #{option.name}'s word and default" do
        _, word, _, default, meaning = table.fetch(option.name)
        expected = case option.default
                   when nil then "none"
                   when Socket::SOMAXCONN then "SOMAXCONN"
                   when Float then option.default.to_s.delete_suffix(".0")
                   else option.default.to_s
                   end

        expect(word.delete("`")).to eq(option.name == :ConfigFile ? "" : option.word.to_s)
        expect(default).to eq(expected)
        expect(meaning).not_to be_empty
      end
    end

    it "is followed by the variables that count" do
      words = text.call("README.md").split.join(" ")
      Fastrack::Configuration::VARIABLES.each { |name, variable| expect(words).to include("`#{variable}` for `#{name}`") }
    end
  end

  it "has a ConfigFile in the README that loads, and sets what it says" do
    code = blocks.call("README.md", "ruby").find { |block| block.start_with?("# fastrack.rb\n") }
    Dir.mktmpdir do |dir|
      file = File.join(dir, "fastrack.rb")
      File.write(file, code)
      settings = Fastrack::ConfigFile.load(file)

      expect(settings).to include(Path: "/run/app/app.sock", MinRequestPerChild: 800, OobGC: true)
      expect(settings.values_at(:BeforeFork, :AfterFork)).to all(respond_to(:call))
    end
  end

  it "lists all signals that master and worker handle, and no others" do
    listed = text.call("docs/signals.md").split(/^## /).to_h do |section|
      [section.lines.first.chomp, section.scan(/^\| ([A-Z0-9, ]+) \|/).flatten.flat_map { |names| names.split(", ") }]
    end

    expect(listed.fetch("To the master") - ["KILL"]).to match_array(Fastrack::Master::SIGNALS)
    expect(listed.fetch("To a worker") - ["KILL"]).to match_array([*Fastrack::Worker::STOP_SIGNALS, Fastrack::Worker::LOG_SIGNAL, *Fastrack::Worker::MASTER_SIGNALS])
  end

  it "names commands in the README that can be run" do
    commands = text.call("README.md").scan(/^    (b(?:in|ench)\/\w+)/).flatten.uniq - ["bin/rails"]

    expect(commands).to include("bin/serve", "bin/test", "bin/setup", "bench/run")
    expect(commands).to all(satisfy { |command| File.executable?(File.join(root, command)) })
  end

  it "has a place for the benchmark's results in the README" do
    expect(text.call("README.md")).to match(/^<!-- benchmark:begin -->\n.*^<!-- benchmark:end -->$/m)
  end

  it "has this version in the list of changes" do
    expect(text.call("CHANGELOG.md")).to match(/^## \[#{Regexp.escape(Fastrack::VERSION)}\]/)
  end

  it "lists the lanes that bin/test has" do
    lanes = File.read(File.join(root, "bin/test"))[/^all_lanes=\(([^)]*)\)/, 1].split
    expect(rows.call("docs/internals.md").map { |cells| cells.first.delete("`") }).to include(*lanes)
  end
end
