# frozen_string_literal: true

require "io/wait"
require "json"
require_relative "rust_program"

module Bench
  # Clients of the program of bench/load that are there while something else is measured: slow ones, idle ones.
  module Bystanders
    # Seconds until they must all be there, and gone.
    PATIENCE = 60
    private_constant :PATIENCE

    # @param endpoint [Endpoint::Tcp]
    # @param command [String] `trickle` or `hold`
    # @param options [Hash{Symbol => Object}] of that command
    # @yieldparam there [Hash{String => Integer}] what it says when all are there
    # @return [Array(Object, Hash)] what the block gives, and what the program says in the end
    # @raise [RuntimeError] when they do not come or go
    def self.run(endpoint, command, **options)
      words = options.flat_map { |name, value| ["--#{name.to_s.tr("_", "-")}", value.to_s] }
      IO.popen([RustProgram.path("load"), command, "--address", endpoint.to_s, *words], "r+") do |program|
        result = yield line(program)
        program.close_write
        [result, line(program)]
      ensure
        # Without this, popen would wait for as long as it runs, whatever went wrong here.
        Process.kill(:KILL, program.pid)
      end
    end

    def self.line(program)
      text = program.wait_readable(PATIENCE) && program.gets
      text ? JSON.parse(text) : raise("load gave no answer in #{PATIENCE} s")
    end
    private_class_method :line
  end
end
