# frozen_string_literal: true

require "fastrack"
require "fastrack/configuration"
require "fastrack/master"

# The manual against the code: what can be compared is, so that it stays true.
RSpec.describe "the documentation", once: "pages against the code" do
  root = File.expand_path("../..", __dir__)
  pages = Dir.glob(%w[*.md docs/**/*.md], base: root).sort
  manual = pages.grep(%r{\A(?:README\.md|docs/[\w-]+\.md)\z})
  text = ->(page) { File.read(File.join(root, page), encoding: "UTF-8") }

  # A page without what is code in it: blocks between fences, indented commands and `inline code`.
  prose = ->(page) { text.call(page).gsub(/^(`{3,}|~{3,})[^\n]*\n.*?^\1$/m, "").gsub(/^ {4}.*$/, "").gsub(/(`+)(?!`).+?(?<!`)\1(?!`)/m, "``") }

  # The anchors of a page's headings on code hosting sites. The second of a name gets a number.
  anchors = lambda do |page|
    headings = text.call(page).gsub(/^(`{3,}|~{3,})[^\n]*\n.*?^\1$/m, "").scan(/^\#{1,6} (.+)$/).flatten
    seen = Hash.new(-1)
    headings.map do |heading|
      name = heading.downcase.gsub(/[^\p{Alnum}\-_ ]/, "").tr(" ", "-")
      (seen[name] += 1).zero? ? name : "#{name}-#{seen[name]}"
    end
  end

  # Where a page's links and images lead: [text](target "title"), [name]: target, src="target".
  targets = lambda do |page|
    prose.call(page).scan(/\]\(<?([^)\s>]+)>?(?:\s+"[^"]*")?\)|^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)|(?:src|href)="([^"]+)"/).flatten.compact
  end

  # A target in this repository: the file, and the heading in it.
  destination = lambda do |page, target|
    file, heading = target.split("#", 2)
    file = file.empty? ? page : File.expand_path(File.join(File.dirname(page), file), "/")[1..]
    [file, heading]
  end

  local = ->(page) { targets.call(page).grep_v(/\A[a-z]+:/) }

  # The cells of the rows of a page's tables.
  rows = ->(page) { text.call(page).lines.grep(/\A\|/).map { |line| line.strip[1..-2].split(/(?<!\\)\|/).map(&:strip) } }

  # Blocks of code of a language.
  blocks = ->(page, language) { text.call(page).scan(/^```#{language}\n(.*?)^```$/m).flatten }

  it "has each page in reach of the README" do
    reached = ["README.md"]
    reached.each do |page|
      found = local.call(page).map { |target| destination.call(page, target).first }.grep(/\.md\z/)
      reached.concat(found & pages - reached)
    end
    expect(pages - reached).to all(start_with("docs/benchmark/"))
  end

  it "has links to files, images and headings that exist" do
    broken = pages.flat_map do |page|
      local.call(page).reject do |target|
        file, heading = destination.call(page, target)
        File.exist?(File.join(root, file)) && (heading.nil? || (file.end_with?(".md") && anchors.call(file).include?(heading)))
      end.map { |target| "#{page}: #{target}" }
    end
    expect(broken).to eq([])
  end

  it "names files of this repository that exist" do
    # The app's own commands, and what a run of the benchmark writes.
    others = %w[bin/rails bin/dev bin/thrust bench/results bench/results/system.json bench/results/system]
    missing = pages.flat_map do |page|
      named = text.call(page).scan(%r{(?<![\w/])((?:lib|crates|ext|bin|bench|spec|examples|docs)/[\w./-]*\w)}).flatten.uniq - others
      named.reject { |path| File.exist?(File.join(root, path)) }.map { |path| "#{page}: #{path}" }
    end
    expect(missing).to eq([])
  end

  it "has Ruby code that compiles" do
    pages.each { |page| blocks.call(page, "ruby").each { |code| expect { RubyVM::InstructionSequence.compile(code) }.not_to raise_error, page } }
  end

  describe "the tables of docs/options.md" do
    listed = rows.call("docs/options.md").select { |cells| cells.size == 5 && cells[1].start_with?("`") }
    names = listed.map { |cells| cells[1].delete("`").to_sym }
    table = names.zip(listed).to_h

    it("have every option once, and no other") { expect(names).to match_array(Fastrack::Option::ALL.map(&:name)) }

    it "have its word, type and default" do
      differing = Fastrack::Option::ALL.reject do |option|
        word, _, type, default, meaning = table.fetch(option.name)
        value = { nil => "none", Socket::SOMAXCONN => "SOMAXCONN" }.fetch(option.default) { |one| one.is_a?(Float) ? one.to_s.delete_suffix(".0") : one.to_s }
        found = [word.delete("`"), default, type == "block", type == "boolean", meaning.match?(/\w/)]
        found == [option.name == :ConfigFile ? "" : option.word.to_s, value, option.hook?, [true, false].include?(option.default), true]
      end
      expect(differing.map(&:name)).to eq([])
    end

    it "have each timeout in the table that says when it runs, with its default" do
      timeouts = Fastrack::Option::ALL.select { |option| option.name.end_with?("Timeout") }.to_h { |option| [option.word.to_s, option.default] }
      said = rows.call("docs/options.md").select { |cells| cells.size == 5 && timeouts.key?(cells.first.delete("`")) && !cells[1].start_with?("`") }
      found = said.to_h { |cells| [cells.first.delete("`"), cells[3][/\A\d+(?= s\z)/]&.to_f] }
      expect(found.merge("client_timeout" => 300.0)).to eq(timeouts)
    end

    it "are followed by the variables that count" do
      words = text.call("docs/options.md").split.join(" ")
      Fastrack::Configuration::VARIABLES.each do |name, variables|
        expect(words).to include("#{variables.map { |variable| "`#{variable}`" }.join(", ")} for `#{Fastrack::Option::BY_NAME[name].word}`")
      end
    end

    it "are as many as the README says" do
      expect(text.call("README.md")).to match(/^All #{Fastrack::Option::ALL.size} options/)
    end
  end

  it "names options in the manual that exist" do
    known = Fastrack::Option::BY_NAME.keys.map(&:to_s)
    given = manual.flat_map { |page| text.call(page).scan(/-O (\w+)|`(\w+)=[\w.\/]+`/).flatten.compact }.uniq
    expect(given.grep(/\A[A-Z][a-z]/) - known - %w[Name Restart Type KillMode NotifyAccess RuntimeDirectory AmbientCapabilities]).to eq([])
  end

  it "has a ConfigFile in the README that loads, and sets what it says" do
    code = blocks.call("README.md", "ruby").find { |block| block.start_with?("# config/fastrack.rb\n") }
    Dir.mktmpdir do |dir|
      file = File.join(dir, "fastrack.rb")
      File.write(file, code)
      before = ENV.fetch("RAILS_ENV", nil)
      production, development = %w[production development].map do |stage|
        ENV["RAILS_ENV"] = stage
        Fastrack::ConfigFile.load(file)
      end

      expect(production).to include(Path: "/run/app/app.sock", Pid: "/run/app/app.pid", RequestTimeout: 30.0, GracefulTimeout: 25.0)
      expect(production.values_at(:BeforeFork, :AfterFork)).to all(respond_to(:call))
      # No socket in /run, and a debugger may last.
      expect(development.keys).to eq(%i[BeforeFork AfterFork])
    ensure
      ENV["RAILS_ENV"] = before
    end
  end

  it "says in the README what the product, the gem and the handler are called, and how to have the gem before it is released" do
    first, = text.call("README.md").split("\n\n").drop(1)
    expect(first).to match(/\AFastrack \(gem `rhebok-rs`, handler `fastrack`\) is a /)
    released = !text.call("CHANGELOG.md").include?("## [#{Fastrack::VERSION}] - unreleased")
    forge = File.read(File.join(root, "rhebok-rs.gemspec"))[/forge = (".*")/, 1]
    expect(blocks.call("README.md", "ruby").first.include?("gem \"rhebok-rs\", git: #{forge}")).to be(!released)
  end

  it "has figures in the README's table that are those of the published results" do
    published = rows.call("docs/benchmark/rails-page/rack3.md")
    header = published.first
    expected = { "requests per second" => "requests/s", "p99, milliseconds" => "p99 ms", "memory after load, MB" => "after load" }.map do |name, column|
      figures = %w[fastrack fastrack-threads puma-threads unicorn].map { |server| published.assoc(server)[header.index(column)] }
      [name, *figures.map { |figure| figure.to_f.round.to_s }]
    end
    expect(rows.call("README.md")).to include(*expected)
  end

  it "lists all signals that master and worker handle, and no others" do
    signals = rows.call("docs/signals.md").select { |cells| cells.size == 3 && cells.first.match?(/\A[A-Z0-9]+\z/) }
    of = ->(column) { signals.reject { |cells| cells[column] == "–" }.map(&:first) - ["KILL"] }

    expect(of.call(1)).to match_array(Fastrack::Master::SIGNALS)
    expect(of.call(2)).to match_array([*Fastrack::Worker::STOP_SIGNALS, Fastrack::Worker::LOG_SIGNAL, Fastrack::Worker::DRAIN_SIGNAL,
                                       Fastrack::Worker::BACKTRACE_SIGNAL, Fastrack::Worker::INTERRUPT_SIGNAL,
                                       *Fastrack::Worker::MASTER_SIGNALS])
    ignored = signals.select { |cells| cells[2] == "Ignored." }.map(&:first)
    expect(ignored).to match_array(Fastrack::Worker::MASTER_SIGNALS)
  end

  it "has this version in the list of changes" do
    expect(text.call("CHANGELOG.md")).to match(/^## \[#{Regexp.escape(Fastrack::VERSION)}\]/)
  end
end
