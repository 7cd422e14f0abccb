# frozen_string_literal: true

# Prints how many times as long as usual tests are to wait for something: twice, because specs share the processors with
# each other, and more by as much as other programs keep this machine's processors from computing.

require "etc"

# Seconds that each process computes.
SECONDS = 0.3

def clock(kind) = Process.clock_gettime(kind)

# @return [Float] how many times as long it took as it computed: 1.0 on an idle machine
def stretch
  began = clock(Process::CLOCK_MONOTONIC)
  nil while clock(Process::CLOCK_PROCESS_CPUTIME_ID) < SECONDS
  (clock(Process::CLOCK_MONOTONIC) - began) / SECONDS
end

reader, writer = IO.pipe
pids = Array.new(Etc.nprocessors) do
  fork do
    reader.close
    writer.puts(stretch)
  end
end
writer.close
pids.each { |pid| Process.wait(pid) }
stretches = reader.each_line.map(&:to_f)
abort "patience.rb: no process said how long it took" if stretches.empty?
# More would only have a test that fails take minutes to say so.
puts (2 * stretches.max).round.clamp(2, 10)
