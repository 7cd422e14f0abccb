# frozen_string_literal: true

module Fastrack
  # Makes the heap of a process fit to be shared with the children that it will fork.
  module WarmUp
    module_function

    # Compacts the heap and makes its objects old, so that children share this process's memory instead of copying it at their
    # first garbage collection.
    def run
      # Objects are old, and skipped by minor collections, once they have survived three.
      return 4.times { GC.start } unless Process.respond_to?(:warmup)

      Process.warmup
      # A compact heap has little room left. This collection lets it grow; else those of the workers would have to, and it takes a
      # full mark, which on Ruby 3.3 writes to the code of all methods.
      GC.start if RUBY_VERSION.start_with?("3.3.")
    end
  end
end
