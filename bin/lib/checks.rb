# frozen_string_literal: true

# Checks of the code that read it only: checks.rb RUBY_FILE...
#
# - Ruby compiles each of the files without a warning (`ruby -wc`, all in one process);
# - a file of lib/ and a method there are not too long, and no file requires itself by way of others;
# - no module of a crate imports itself by way of others, so that imports run one way. A module is a folder or file right under `src`; lib.rs is
#   above all of them. Cargo.toml says which crates a crate may import, and cargo holds it to that.
#
# Exits with 1 when it finds something.

require "tsort"

LONGEST_FILE = 400
# Lines of code: neither blank nor a comment alone.
LONGEST_METHOD = 20
# Unit tests: no rule limits their imports.
TESTS = /^#\[cfg\((?:all\()?test\b[^\n]*\n(?:#\[path[^\n]*\n)?mod \w+ ?\{.*\z|^#\[cfg\(test\)\][^\n]*\n(?:#\[path[^\n]*\n)?mod \w+;/m.freeze

# @return [Array<String>] what Ruby says of the files
def warnings(files)
  said = []
  Warning.define_singleton_method(:warn) { |message, **| said << message }
  $VERBOSE = true
  files.each do |file|
    RubyVM::InstructionSequence.compile_file(file)
  rescue SyntaxError => error
    said << error.message
  end
  said
end

def methods_of(node)
  return [] unless node.is_a?(RubyVM::AbstractSyntaxTree::Node)

  (%i[DEFN DEFS].include?(node.type) ? [node] : []) + node.children.flat_map { |child| methods_of(child) }
end

def lengths(file)
  lines = File.readlines(file)
  long = methods_of(RubyVM::AbstractSyntaxTree.parse(lines.join)).select do |node|
    lines[node.first_lineno - 1..node.last_lineno - 1].count { |line| !line.match?(/\A\s*(#.*)?$/) } > LONGEST_METHOD
  end
  long.map { |node| "#{file}:#{node.first_lineno}: a method of more than #{LONGEST_METHOD} lines" } +
    (lines.size > LONGEST_FILE ? ["#{file}: #{lines.size} lines, at most #{LONGEST_FILE}"] : [])
end

# @return [Hash{String => Array<String>}] what each file requires
def requires(files)
  files.to_h { |file| [file, File.read(file).scan(/^\s*require_relative "(.+)"/).map { |name,| File.expand_path("#{name}.rb", File.dirname(file)) }] }
end

# @param source [String] a crate's folder
# @return [Hash{String => Array<String>}] the modules that each module names by a path that begins with `crate::`, or with a `super::` that leads there
def imports(source)
  # A program has no lib.rs, and exports nothing.
  uses = Dir["#{source}/lib.rs"].map { |file| File.read(file) }.join.scan(/^pub use (\w+)::(?:\w+::)*(?:\{([^}]*)\}|(\w+));/m)
  exports = uses.flat_map { |from, several, one| (several || one).scan(/\w+/).map { |name| [name, from] } }.to_h
  found = Dir["#{source}/**/*.rs"].sort.each_with_object(Hash.new { |hash, name| hash[name] = [] }) do |file, all|
    words = file.delete_prefix("#{source}/").delete_suffix(".rs").split("/") - ["mod"]
    next if [["lib"], ["main"]].include?(words) || words.include?("tests")

    text = File.read(file).sub(TESTS, "").gsub(%r{//[^\n]*}, "")
    text.scan(/\bcrate::\{/) { abort "#{file}: one `use` for each module, not crate::{...}" }
    ups = text.scan(/\b((?:super::)+)(\w+)/).filter_map { |up, name| name if up.scan("super").size == words.size }
    all[words.first] |= (text.scan(/\bcrate::(\w+)/).flatten + ups).map { |name| exports.fetch(name, name) } - [words.first]
  end
  found.transform_values { |names| names & found.keys }
end

def circles(where, graph)
  parts = TSort.strongly_connected_components(graph.keys.method(:each), ->(one, &block) { (graph[one] & graph.keys).each(&block) })
  parts.select { |part| part.size > 1 }.map { |part| "#{where}: a circle of imports: #{part.sort.join(" ")}" }
end

Dir.chdir(File.expand_path("../..", __dir__))
lib = Dir[File.expand_path("lib/**/*.rb")].sort
crates = Dir["{crates/*,ext/fastrack}/src"].sort
problems = warnings(ARGV) + lib.flat_map { |file| lengths(file) } + circles("lib", requires(lib)) + crates.flat_map { |source| circles(source, imports(source)) }
puts problems, "#{ARGV.size} Ruby files, #{crates.size} crates, #{problems.size} problems"
exit(problems.empty? && ARGV.any? && crates.any?)
