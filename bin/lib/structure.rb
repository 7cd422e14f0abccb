# frozen_string_literal: true

# Holds lib/ to its limits: how many files it has and in which folders, how long they and their methods are, and that no
# file requires itself by way of others. Prints the figures, and fails when a limit is exceeded.
#
#   ruby bin/lib/structure.rb         reads the files
#   ruby bin/lib/structure.rb trace   starts a server, and counts the files that a boot and a HUP enter

require "rbconfig"
require "tmpdir"
require "tsort"

# The figures of lib/ and their limits.
module Structure
  ROOT = File.expand_path("../..", __dir__)
  LIB = File.join(ROOT, "lib")

  LIMITS = {
    "files in lib/fastrack" => 85, "files at its top" => 13, "files in one folder" => 8,
    "lines of code in lib" => 7200, "lines of the longest file" => 300, "lines of the longest method" => 20,
    "circles of requires" => 0, "files entered by a boot" => 20, "files entered by a HUP" => 14
  }.freeze

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
    in_folders = files("#{LIB}/fastrack").group_by { |file| File.dirname(file) }
    top = in_folders.delete("#{LIB}/fastrack")
    lengths = files.to_h { |file| [short(file), File.readlines(file).size] }
    methods = files.flat_map { |file| method_lengths(file) }.to_h
    circles = Requires.new(files).circles
    circles.each { |circle| puts "  circle: #{circle.map { |file| short(file) }.join(" -> ")}" }
    in_folders.each { |folder, inside| puts "  #{short(folder)}: #{inside.size} files" }
    {
      "files in lib/fastrack" => top.size + in_folders.values.sum(&:size), "files at its top" => top.size,
      "files in one folder" => in_folders.values.map(&:size).max.to_i,
      "lines of code in lib" => files.sum { |file| File.readlines(file).count { |line| code?(line) } },
      "lines of the longest file" => longest(lengths), "lines of the longest method" => longest(methods),
      "circles of requires" => circles.size
    }
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

  # Starts `rackup -s Fastrack` with a tiny app on any free port. What counts is the master.
  def trace
    Dir.mktmpdir("fastrack-structure") do |dir|
      File.write("#{dir}/config.ru", "run ->(_env) { [200, {}, []] }\n")
      environment = { "TRACE_TO" => "#{dir}/trace", "RUBYOPT" => nil, "WEB_CONCURRENCY" => nil, "PORT" => nil }
      command = [RbConfig.ruby, "-I", LIB, "-r", "#{__dir__}/structure/tracer", "-S", "rackup", "-s", "Fastrack", "-E", "none",
                 "-O", "Host=127.0.0.1", "-O", "Port=0", "-O", "MaxWorkers=1", "config.ru"]
      pid = spawn(environment, *command, chdir: dir, in: File::NULL, %i[out err] => "#{dir}/log")
      begin
        measure(pid, dir)
      ensure
        Process.kill(:TERM, pid)
        Process.wait(pid)
      end
    end
  end

  def measure(pid, dir)
    boot = calls(dir)
    started = boot.find { |_, name| name == "fastrack/handler.rb run" }.first
    boot = boot.select { |time, _| time >= started }
    File.unlink("#{dir}/trace")
    # What is left of the boot is over by then.
    sleep(0.5)
    sent = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    Process.kill(:HUP, pid)
    hup = calls(dir).select { |time, _| time >= sent }
    { "files entered by a boot" => entered("boot", boot), "files entered by a HUP" => entered("HUP", hup) }
  end

  # Waits until the server is ready.
  #
  # @return [Array<Array(Float, String)>] the time and the name of each method that was entered
  def calls(dir)
    600.times { File.exist?("#{dir}/trace") ? break : sleep(0.05) }
    raise "the server is not ready:\n#{File.read("#{dir}/log")}" unless File.exist?("#{dir}/trace")

    File.readlines("#{dir}/trace", chomp: true).map { |line| line.split(" ", 2) }.map { |time, name| [time.to_f, name] }
  end

  def entered(what, calls)
    methods = calls.map(&:last)
    found = methods.map { |name| name.split.first }.tally
    puts "  #{what}: #{methods.size} methods of #{found.size} files", found.map { |file, count| "    #{file} #{count}" }.sort
    found.size
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

exit Structure.check(ARGV.first == "trace" ? Structure.trace : Structure.read) if $PROGRAM_NAME == __FILE__
