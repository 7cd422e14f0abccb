# frozen_string_literal: true

# Holds lib/ to its limits: the lines of a file, the lines of a method, and no file that requires itself by way of others.

require "tsort"

LONGEST_FILE = 400
# Lines of code: neither blank nor a comment alone.
LONGEST_METHOD = 20

def definitions(node)
  return [] unless node.is_a?(RubyVM::AbstractSyntaxTree::Node)

  (%i[DEFN DEFS].include?(node.type) ? [node] : []) + node.children.flat_map { |child| definitions(child) }
end

Dir.chdir(File.expand_path("../..", __dir__))
files = Dir["lib/**/*.rb"].sort.map { |file| File.expand_path(file) }
requires = files.to_h { |file| [file, File.read(file).scan(/^\s*require_relative "(.+)"/).map { |name,| File.expand_path("#{name}.rb", File.dirname(file)) }] }
problems = files.flat_map do |file|
  lines = File.readlines(file)
  long = definitions(RubyVM::AbstractSyntaxTree.parse(lines.join)).select do |node|
    lines[node.first_lineno - 1..node.last_lineno - 1].count { |line| !line.match?(/\A\s*(#.*)?$/) } > LONGEST_METHOD
  end
  long.map { |node| "#{file}:#{node.first_lineno}: a method of more than #{LONGEST_METHOD} lines" } +
    (lines.size > LONGEST_FILE ? ["#{file}: #{lines.size} lines, at most #{LONGEST_FILE}"] : [])
end
circles = TSort.strongly_connected_components(files.method(:each), ->(file, &block) { requires[file].each(&block) })
problems += circles.select { |circle| circle.size > 1 }.map { |circle| "a circle of requires: #{circle.join(" ")}" }
puts problems, "structure: #{files.size} files of lib, #{problems.size} problems"
exit problems.empty?
