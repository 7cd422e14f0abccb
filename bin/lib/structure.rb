# frozen_string_literal: true

# Holds lib/ to its limits: how long its files and their methods are, and that no file requires itself by way of others.
# Prints the figures, and fails when a limit is exceeded: ruby bin/lib/structure.rb

require "tsort"

# The figures of lib/ and their limits.
module Structure
  ROOT = File.expand_path("../..", __dir__)
  LIB = File.join(ROOT, "lib")

  LIMITS = { "lines of the longest file" => 400, "lines of the longest method" => 20, "circles of requires" => 0 }.freeze

  # What lib/ requires of itself.
  class Requires
    include TSort

    def initialize(files)
      @files = files
    end

    def circles
      each_strongly_connected_component.select { |files| files.size > 1 || tsort_each_child(files.first).include?(files.first) }
    end

    def tsort_each_node(&block)
      @files.each(&block)
    end

    def tsort_each_child(file, &block)
      File.read(file).scan(/^\s*require_relative "(.+)"/).map { |name,| "#{File.expand_path(name, File.dirname(file))}.rb" }.each(&block)
    end
  end

  module_function

  def files(folder = LIB)
    Dir.glob("#{folder}/**/*.rb").sort
  end

  # Neither blank nor a comment alone.
  def code?(line)
    !line.match?(/\A\s*(#.*)?$/)
  end

  def read
    lengths = files.to_h { |file| [short(file), File.readlines(file).size] }
    methods = files.flat_map { |file| method_lengths(file) }.to_h
    circles = Requires.new(files).circles
    circles.each { |circle| puts "  circle: #{circle.map { |file| short(file) }.join(" -> ")}" }
    { "lines of the longest file" => longest(lengths), "lines of the longest method" => longest(methods),
      "circles of requires" => circles.size }
  end

  def short(path)
    path.delete_prefix("#{ROOT}/")
  end

  def longest(lengths)
    name, length = lengths.max_by(&:last)
    puts "  longest: #{name}, #{length} lines"
    length
  end

  # @return [Array<Array(String, Integer)>] each method's place, and its lines without comments and blanks
  def method_lengths(file)
    lines = File.readlines(file)
    definitions(RubyVM::AbstractSyntaxTree.parse(lines.join)).map do |node|
      body = lines[node.first_lineno - 1..node.last_lineno - 1]
      ["#{short(file)}:#{node.first_lineno}", body.count { |line| code?(line) }]
    end
  end

  def definitions(node)
    return [] unless node.is_a?(RubyVM::AbstractSyntaxTree::Node)

    (%i[DEFN DEFS].include?(node.type) ? [node] : []) + node.children.flat_map { |child| definitions(child) }
  end

  # @return [Boolean] whether all limits are kept
  def check(figures)
    figures.map do |name, figure|
      limit = LIMITS.fetch(name)
      puts "#{name}: #{figure} (at most #{limit})#{" TOO MANY" if figure > limit}"
      figure <= limit
    end.all?
  end
end

exit Structure.check(Structure.read) if $PROGRAM_NAME == __FILE__
