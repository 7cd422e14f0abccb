# frozen_string_literal: true

# Required by the server that bin/lib/structure.rb traces. Notes each method of lib/ that is entered, with the time of the
# last call, and writes the list into the file TRACE_TO whenever the server says that it is ready.
module Tracer
  ROOT = File.expand_path("../../../lib", __dir__)
  ENTERED = Hash.new(0.0)

  module_function

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  def start
    TracePoint.new(:call) do |call|
      ENTERED["#{call.path.delete_prefix("#{ROOT}/")} #{call.method_id}"] = now if call.path.start_with?(ROOT)
    end.enable
  end

  def write
    file = ENV.fetch("TRACE_TO")
    File.write("#{file}.new", ENTERED.map { |name, time| "#{time} #{name}\n" }.join)
    File.rename("#{file}.new", file)
  end

end

Tracer.start
$stdout.extend(Module.new { define_method(:puts) { |*lines| super(*lines).tap { Tracer.write if lines.first.to_s.start_with?("Fastrack is ready") } } })
