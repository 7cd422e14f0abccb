# frozen_string_literal: true

# Runs the specs with the Ruby that runs this, several files at a time: specs.rb [--all] [--only NAME] [SPEC...]
#
# Each file has a process of its own, forked from this one, which has loaded rspec and spec_helper. The files that took longest last time
# come first, so that no long one is left for the end. Examples tagged `alone` run after all others, one file at a time. Examples tagged `once` do not depend on Ruby's or
# Rack's version, and run in the lane `system` only; those tagged `packaging` run with --all. A file that is named runs in any case.
# Each file's output is in tmp/test/LANE/.
#
# A file that fails runs once more at the end, by itself: a test must not fail because the machine is busy. A file that passes then is
# named as unsteady. More than three files that fail are no accident, and are not run again; neither is a file that ran alone.
#
# A warning of Ruby's about the project's own code is a failure, and so is a run of no example.
#
# TEST_PROCESSES is how many files run at a time (default: four times the processors, because examples wait more than
# they compute).

require "English"
require "etc"
require "fileutils"
require "json"
require "optparse"
require "rspec/core"
require "rspec/expectations"
require "rspec/mocks"
require "socket"
require "stringio"
require "tmpdir"

# One file of specs and the rspec process that runs it.
class SpecFile
  SUMMARY = /^(\d+) examples?, (\d+) failures?(?:, (\d+) pending)?/.freeze
  FAILURES = /^(?:Failures:|An error occurred )/.freeze

  attr_reader :path, :seconds

  # @param path [String] relative to the repository
  # @param log [String] the file that gets all output
  # @param tags [Array<String>] which examples are run
  def initialize(path, log, tags)
    @path = path
    @log = log
    @tags = tags
  end

  # @return [Integer] the process
  def start
    FileUtils.mkdir_p(File.dirname(@log))
    @begun = now
    fork do
      # Under nohup(1) the servers would ignore HUP as well.
      %i[TERM HUP].each { |name| trap(name, "DEFAULT") }
      $stdin.reopen(File::NULL)
      $stdout.reopen(@log, "w")
      $stderr.reopen($stdout)
      RSpec.configuration.start_time = RSpec::Core::Time.now
      exit RSpec::Core::Runner.run([*self.class.options(@tags), path])
    end
  end

  # @return [Array<String>] rspec's
  def self.options(tags)
    ["--warnings", "--no-color", *tags.flat_map { |tag| ["--tag", tag] }]
  end

  def ended(status)
    @status = status
    @seconds = now - @begun
    @output = File.read(@log, encoding: "UTF-8").scrub
  end

  # @return [Array<Integer>] examples, failures and pending ones
  def counts
    @output.scan(SUMMARY).last.to_a.map(&:to_i).then { |found| found + [0] * (3 - found.size) }
  end

  def passed?
    @status.success? && warnings.empty?
  end

  # @return [SpecFile] the same file, for another run
  def again = SpecFile.new(path, @log.sub(/\.log\z/, "-again.log"), @tags)

  # @return [Array<String>] what Ruby said of the project's own code
  def warnings = self.class.warnings(@output)

  def self.warnings(output) = output.lines.grep(%r{\A(?:#{Regexp.escape(Dir.pwd)}|\.)/.*: warning: }).uniq

  # Loads what all files load, once and for all of them.
  def self.load_helper
    $LOAD_PATH.unshift(File.expand_path("lib"), File.expand_path("spec"))
    $VERBOSE = true
    $stderr = StringIO.new
    require "spec_helper"
    said = warnings($stderr.string)
  ensure
    $stderr = STDERR
    abort said.join if said&.any?
  end

  # @return [String] from where rspec begins to say what failed, or the last words
  def failures
    found = @output.index(FAILURES)
    [found ? @output[found..] : @output[-4_000..] || @output, *warnings].join
  end

  # @return [String] the end of all output: the logs of the servers come before what rspec says
  def last_words = [*@output.lines.last(400), *warnings].join

  private

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

# All files, and what came of them.
class SpecRun
  # Seconds after which a file that hangs is ended.
  LONGEST = 900

  # More files than this that fail are not run again.
  MOST_UNSTEADY = 3

  # What runs if no file is named. Through the proxy it is the wire's specs (spec/support/front.rb).
  FOLDERS = { nil => ["spec"], "http1" => %w[spec/connections spec/http spec/rack spec/streams],
              "h2" => %w[spec/http spec/rack spec/streams] }.fetch(ENV.fetch("FASTRACK_FRONT", nil))

  # @param arguments [Array<String>] what bin/test was given; without a file the whole of spec/ is run
  def initialize(arguments)
    @lane = ENV.fetch("FASTRACK_LANE", "system")
    @logs = "tmp/test/#{@lane}"
    @tags = []
    @named = parser.parse(arguments)
    @tags += left_out if @named.empty?
    @processes = Integer(ENV.fetch("TEST_PROCESSES", 4 * Etc.nprocessors))
    @durations = File.exist?(durations_file) ? JSON.parse(File.read(durations_file)) : {}
    @ended = []
    @unsteady = []
  end

  # @return [Boolean] whether all passed
  def run
    FileUtils.rm_rf(@logs)
    FileUtils.mkdir_p(@logs)
    SpecFile.load_helper
    return run_only if @only

    File.open("tmp/test/alone.lock", "a") do |lock|
      lock.flock(File::LOCK_SH)
      phase(paths, @tags + ["~alone"], @processes)
      # The Rust tests that bin/test runs beside the specs have to end first.
      lock.flock(File::LOCK_EX)
      phase(paths.select { |path| tagged?(path, "alone") }, @tags + ["alone"], 1)
      run_again
    end
    save_durations
    report
  end

  private

  def durations_file = "tmp/test/#{@lane}.durations.json"

  def parser
    OptionParser.new do |options|
      options.banner = "usage: specs.rb [--all] [--only NAME] [--tag TAG]... [SPEC...]"
      options.on("--all") { @all = true }
      options.on("--only NAME") { |name| @only = name }
      options.on("--tag TAG") { |tag| @tags << tag }
    end
  end

  # @return [Array<String>] tags of rspec's
  def left_out
    [*("~once" unless %w[system portable proxied proxied-h2].include?(@lane)), *("~packaging" unless @all)]
  end

  # Files, and examples named by line or id, in the order in which they start. Without a known duration a file's size says
  # how long it may take.
  def paths
    folders = @named.empty? ? FOLDERS : @named
    found = folders.flat_map { |name| File.directory?(name) ? Dir["#{name}/**/*_spec.rb"] : [name] }
    found = found.uniq.reject { |path| @tags.include?("~once") && once?(path) }
    found.sort_by { |path| -(@durations[path] || File.size?(path).to_i / 1000.0) }
  end

  # Whether all examples of a file have the tag.
  def once?(path)
    File.read(path).match?(/^RSpec\.describe .*\bonce: /)
  end

  # Whether a file has examples with the tag. One that is named by its line has run already, whatever its tags are.
  def tagged?(path, tag)
    File.file?(path) && File.read(path).match?(/\b#{tag}: "/)
  end

  # Runs each file that failed by itself.
  def run_again
    failed = @ended.reject(&:passed?)
    return if failed.empty? || failed.size > MOST_UNSTEADY || @ended.uniq(&:path).one?

    puts "once more, by itself:"
    @ended -= failed
    failed.each do |file|
      run_files([file.again], 1)
      @unsteady << file if @ended.last.passed?
    end
  end

  def phase(paths, tags, processes)
    suffix = tags.last.sub("~", "not-")
    logs = paths.map { |path| "#{@logs}/#{path.delete_prefix("./").tr("/", "-")}-#{suffix}.log" }
    run_files(paths.zip(logs).map { |path, log| SpecFile.new(path, log, tags) }, processes)
  end

  def run_files(waiting, processes)
    running = {}
    # To rspec it says: end after this example, with what belongs to its end.
    trap(:TERM) { running.each_key { |pid| Process.kill(:INT, pid) } && waiting.clear }
    until waiting.empty? && running.empty?
      while running.size < processes && (file = waiting.shift)
        pid = file.start
        running[pid] = [file, limit(pid)]
      end
      pid, status = Process.wait2
      file, limit = running.delete(pid)
      limit.kill
      finish(file, status)
    end
  end

  # Ends a file that hangs. At the first INT rspec would end after the example, at the second at once.
  def limit(pid)
    Thread.new do
      sleep LONGEST
      2.times { Process.kill(:INT, pid) && sleep(1) }
    rescue Errno::ESRCH
      nil
    end
  end

  # All files in one process, which is quicker than to ask each.
  def run_only
    reader, writer = IO.pipe
    pid = fork do
      $stdout.reopen(writer)
      exit RSpec::Core::Runner.run([*SpecFile.options(@tags), "--example", @only, *(@named.empty? ? ["spec"] : @named)])
    end
    writer.close
    output = reader.each_line.map { |line| line.tap { puts line } }
    Process.wait(pid)
    return $CHILD_STATUS.success? unless output.include?("0 examples, 0 failures\n")

    system("cargo", "test", "--workspace", @only.tr(" ", "_"))
  end

  def finish(file, status)
    file.ended(status)
    @ended << file
    return if file.passed? && file.counts.first.zero?

    puts format("%-60s %4d examples, %d failures  %5.1f s", file.path, *file.counts.first(2), file.seconds)
    puts file.last_words unless file.passed?
    $stdout.flush
  end

  def save_durations
    took = @ended.group_by(&:path).transform_values { |files| files.sum(&:seconds).round(1) }
    File.write(durations_file, JSON.pretty_generate(@durations.merge(took)))
  end

  def report
    examples, failures, pending = @ended.map(&:counts).transpose.map(&:sum)
    failed = @ended.reject(&:passed?)
    # Once more, for who reads the end only.
    puts "", "failed:", *failed.map { |file| "#{file.path}\n#{file.failures.lines.first(80).join}" } unless failed.empty?
    @unsteady.each { |file| puts "unsteady, failed and then passed by itself: #{file.path}" }
    puts "no example was run" if examples.to_i.zero?
    puts "", "#{examples} examples, #{failures} failures, #{pending} pending"
    failed.empty? && examples.to_i.positive?
  end
end

exit SpecRun.new(ARGV).run
