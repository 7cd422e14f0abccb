# frozen_string_literal: true

# Required by the server that bin/lib/structure.rb traces. Notes each method of lib/ that is entered and when it was entered
# last, and writes the list into the file TRACE_TO whenever the server says that it is ready.
module Tracer
  LIB = "#{File.expand_path("../../../lib", __dir__)}/"

  @entered = {}

  class << self
    def start
      TracePoint.new(:call) do |call|
        next unless call.path.start_with?(LIB)

        @entered["#{call.path.delete_prefix(LIB)} #{call.method_id}"] = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end.enable
      $stdout.extend(self)
    end

    def write
      file = ENV.fetch("TRACE_TO")
      File.write("#{file}.new", @entered.map { |name, time| "#{time} #{name}\n" }.join)
      File.rename("#{file}.new", file)
    end
  end

  # $stdout's
  def puts(line)
    super
    Tracer.write if line.start_with?("Fastrack is ready")
  end
end

Tracer.start
