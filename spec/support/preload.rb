# frozen_string_literal: true

require "rbconfig"
require_relative "gc_mode"

# Starts servers without the third of a second of CPU time that Ruby, RubyGems, Rack and Fastrack take to load: a process that
# has loaded what the program loads forks for each start, see preload/program.
#
# The first starts of a spec file are real ones: each file has some, and those with few pay for no such process. So are all of
# examples with the tag `exec`, whose value says what a new Ruby is for.
class Preload
  # Real starts of a program, before the others.
  REAL = 2

  # What Ruby, RubyGems and the C library read when a program starts, or how the shell finds it.
  EARLY = /\A(?:RUBY|GEM|BUNDLE|LANG|LC_|LD_|MALLOC_|TZ\z|PATH\z|HOME\z)/.freeze

  # See prctl(2).
  SET_CHILD_SUBREAPER = 36

  LOCK = Mutex.new

  # @param words [Array<String>] what a real start begins with: Ruby, its flags, and the program
  # @param help [Array<String>] arguments with which the program loads a server, but shows its help and exits
  def initialize(words, help)
    @words = words
    @help = help
    @starts = 0
  end

  # @param command [Array<String>] all words of a start
  # @param env [Hash{String => String, nil}] what differs from ENV
  # @return [Integer, nil] the server's pid, a child of this process; nil where a new Ruby is to be started
  def start(command, env, dir, log)
    return if command.first(@words.size) != @words || GcMode.name || !RUBY_PLATFORM.include?("linux")
    return if RSpec.current_example&.metadata&.key?(:exec) || env.any? { |name, value| value && name.match?(EARLY) }

    LOCK.synchronize { fork_server(command, ENV.to_h.merge(env).compact, dir, log) if (@starts += 1) > REAL }
  end

  private

  # The process between the other one and the server ends at once, and its child becomes one of this process.
  def fork_server(command, *rest)
    boot unless @answers
    @prctl.call(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    Marshal.dump([command, command.drop(@words.size), *rest], @requests)
    Integer(@answers.gets).tap { @answers.gets }
  ensure
    # What servers leave behind is nobody's here.
    @prctl&.call(SET_CHILD_SUBREAPER, 0, 0, 0, 0)
  end

  def boot
    require "fiddle"
    @prctl = Fiddle::Function.new(Fiddle.dlopen(nil)["prctl"], [Fiddle::TYPE_INT, *[Fiddle::TYPE_LONG] * 4], Fiddle::TYPE_INT)
    # As Ruby's -S finds it.
    script = [nil, *ENV.fetch("PATH").split(":")].map { |folder| File.join(*folder, @words.last) }.find { |file| File.executable?(file) }
    requests, @requests = IO.pipe
    @answers, answers = IO.pipe
    spawn(Server::CLEAN_ENVIRONMENT, RbConfig.ruby, "-w", "-I", Server::LIB, File.join(__dir__, "preload/program.rb"), script, *@help,
          in: requests, out: answers)
    [requests, answers].each(&:close)
  end
end
