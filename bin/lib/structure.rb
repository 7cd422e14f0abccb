# frozen_string_literal: true

# Fails where a file of lib/ is longer than 400 lines, or a method there than 20 without comments and blanks: ruby bin/lib/structure.rb

FILE = 400
METHOD = 20
LIB = File.expand_path("../../lib", __dir__)

def definitions(node)
  return [] unless node.is_a?(RubyVM::AbstractSyntaxTree::Node)

  (%i[DEFN DEFS].include?(node.type) ? [node] : []) + node.children.flat_map { |child| definitions(child) }
end

# @return [Integer] neither blank nor a comment alone
def code(lines) = lines.count { |line| !line.match?(/\A\s*(#.*)?$/) }

problems = Dir.glob("**/*.rb", base: LIB).sort.flat_map do |file|
  lines = File.readlines(File.join(LIB, file))
  methods = definitions(RubyVM::AbstractSyntaxTree.parse(lines.join)).map { |node| [node.first_lineno, code(lines[node.first_lineno - 1..node.last_lineno - 1])] }
  [*("lib/#{file}: #{lines.size} lines" if lines.size > FILE),
   *methods.select { |_, length| length > METHOD }.map { |line, length| "lib/#{file}:#{line}: a method of #{length} lines" }]
end
puts problems, "structure: #{problems.size} files and methods that are too long"
exit problems.empty?
