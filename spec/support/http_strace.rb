# frozen_string_literal: true

# The system calls of a server's workers, as strace(1) tells them: one file for each thread. Times are in seconds.
class HttpStrace
  Call = Struct.new(:time, :name, :arguments, :result) { def to_s = "#{name}(#{arguments}) = #{result}" }

  # The tracer is a grandchild of the server's parent (-D), so that signals go to the server and not to strace.
  def self.wrapper(folder) = %w[strace -D -ff -q -q -ttt -s 64 -e signal=none -o] + [File.join(folder, "trace")]
  def initialize(folder, thread) = @path = File.join(folder, "trace.#{thread}")

  def calls
    return [] unless File.exist?(@path)

    File.readlines(@path).filter_map do |line|
      time, *call = line.match(/\A(\d+\.\d+) (\w+)\((.*)\)\s+= (.*)\n/)&.captures
      Call.new(time.to_f, *call) if time
    end
  end

  # The calls between a request with that target being taken in and the close after the response to another one, both included.
  def window(first, last)
    list = calls
    start = list.index { |call| call.name == "recvfrom" && call.arguments.include?("GET #{first} ") }
    finish = list.index { |call| call.name == "recvfrom" && call.arguments.include?("GET #{last} ") }
    return [] unless start && finish

    finish += 1 until finish >= list.size || list[finish].name == "close"
    list[start - 1..finish]
  end
end
