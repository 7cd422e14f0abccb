# frozen_string_literal: true

# Checks the spelling of the manual and of comments in the code: ruby bin/lib/spelling.rb [FILE...]
#
# aspell knows the English words, docs/words.txt the project's own. Code, names and URLs are left out. Each unknown word is
# printed with its file and line, and the status is 1 if there is any.

require "open3"
require "ripper"

# The English of a file: everything that is meant to be read, line by line.
module Prose
  MARKDOWN_CODE = [/^(`{3,}|~{3,})[^\n]*\n.*?^\1$/m, /<!--.*?-->/m, /^ {4}\S[^\n]*$/, /\]\([^)]*\)/, /(`+)(?!`).+?(?<!`)\1(?!`)/m].freeze

  module_function

  # @return [Array<Array(Integer, String)>] line numbers and texts
  def of(path)
    text = File.read(path, encoding: "UTF-8")
    case File.extname(path)
    when ".md" then markdown(text)
    when ".rs" then rust(text)
    when ".rb", ".ru" then ruby(text)
    else shell(text)
    end
  end

  def markdown(text)
    numbered(without(text, MARKDOWN_CODE))
  end

  # Comments only. Adjacent lines are one text: inline code may go over the end of a line.
  def ruby(text)
    lines = Ripper.lex(text).each_with_object({}) do |((line, _), kind, token, _), found|
      found[line] = token.sub(/\A#+/, "") if kind == :on_comment && !token.start_with?("#!")
    end
    comments(text, lines)
  end

  # An address in a string has no space behind its slashes.
  def rust(text)
    comments(text, grep(text, %r{(?:\A|\s)//[/!]?(?:\s(.*))?\z}))
  end

  def shell(text)
    comments(text, grep(text, /\A\s*#(?!!)(.*)\z/))
  end

  def grep(text, pattern)
    text.lines(chomp: true).each_with_index.to_h { |line, index| [index + 1, line[pattern, 1]] }.compact
  end

  def comments(text, lines)
    whole = (1..text.lines.size).map { |number| "#{lines[number]}\n" }.join
    numbered(without(whole, [/^ {3,}\S[^\n]*$/, /(`+)(?!`)[^`\n]+(?:\n[^`\n]+)?\1(?!`)/]))
  end

  # Line breaks stay, so that numbers of lines are right.
  def without(text, patterns)
    patterns.inject(text) { |rest, pattern| rest.gsub(pattern) { |code| code.gsub(/[^\n]+/, " ") } }
  end

  def numbered(text)
    text.lines.each_with_index.map { |line, index| [index + 1, line] }
  end
end

# Finds misspelled words.
class Spelling
  # Parts of text that are names: paths, identifiers, flags, addresses, numbers with units, types in doc comments.
  NAME = %r{[\d_/\\@=<>$\#{}~^|+]|\w[:.]+\w|\w\(|\A[-.:&]\w}.freeze
  TYPES = /@(?:param|yieldparam|return|raise|yieldreturn)(?:\s+\w+)?(?:\s+\[[^\]]*\])?/.freeze

  # @param own [Array<String>] the project's words, without -s and -'s; one in lower case may be capitalized
  def initialize(own)
    @own = own.to_h { |word| [word, true] }
  end

  # @param texts [Hash{String => Array}] by path, see Prose
  # @return [Array<String>] "path:line: word"
  def unknown(texts)
    found = texts.flat_map { |path, lines| lines.flat_map { |number, line| words(line).map { |word| [word, path, number] } } }
    bad = misspelled(found.map(&:first).uniq.reject { |word| own?(word) })
    found.select { |word, _| bad.include?(word) }.map { |word, path, number| "#{path}:#{number}: #{word}" }.uniq
  end

  private

  def words(line)
    chunks = line.gsub(%r{\w+://\S+}, " ").gsub(TYPES, " ").gsub(/[*"“”`]/, " ").split
    chunks.map { |chunk| chunk.gsub(/\A[(\['_]+|[)\].,:;!?'_]+\z/, "") }.grep_v(NAME)
          .flat_map { |chunk| chunk.scan(/\p{Alpha}+(?:['’]\p{Alpha}+)*/) }
          .reject { |word| word.size < 2 || word.match?(/\p{Alpha}\p{Upper}/) }
          .map { |word| word.tr("’", "'").delete_suffix("'s") }
  end

  def own?(word)
    [word, word.delete_suffix("s")].any? { |form| @own.key?(form) || @own.key?(form.downcase) }
  end

  def misspelled(words)
    output, status = Open3.capture2("aspell", "--lang=en", "--encoding=utf-8", "list", stdin_data: words.join("\n"))
    abort "spelling: aspell failed" unless status.success?

    output.force_encoding("UTF-8").split("\n").to_h { |word| [word, true] }
  end
end

Dir.chdir(File.expand_path("../..", __dir__))
unless `aspell dicts 2>/dev/null || true`.split.include?("en")
  puts "spelling: skipped, there is no aspell with an English dictionary"
  exit
end

manual = Dir["*.md", "docs/*.md"]
code = Dir["{bin,bench,exe,examples,ext,lib,spec}/**/*.{rb,ru}", "{crates,ext,bench}/**/*.rs", "bin/{*,lib/*.sh}", "bench/*"]
code = code.select { |path| File.file?(path) && !path.match?(%r{(?:\A|/)(?:target|tmp|results)/|\.(?:toml|lock|json|lua)\z}) }
files = ARGV.empty? ? manual + code : ARGV
own = File.readlines("docs/words.txt", chomp: true).grep(/\A\p{Alpha}/)
unknown = Spelling.new(own).unknown(files.sort.to_h { |path| [path, Prose.of(path)] })
puts unknown
puts "spelling: #{files.size} files, #{unknown.size} unknown words#{"; add correct ones to docs/words.txt" unless unknown.empty?}"
exit unknown.empty?
