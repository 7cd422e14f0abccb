# frozen_string_literal: true

module Fastrack
  # The memory that a process shares with those that it forks.
  module ShareableMemory
    module_function

    # Prepares memory for forks, in the process that has loaded the app. Compacts the heap and makes objects old, because each worker would
    # copy young objects at its first garbage collection. Fills the space between malloc's blocks, because each worker would copy a page to
    # use it. Gives back the part of the stack that only the boot has used.
    def prepare
      prepare_objects
      Fastrack.fill_heap_holes
      Fastrack.release_stack
    end

    def prepare_objects
      return make_old unless Process.respond_to?(:warmup)

      Process.warmup
      # A compacted heap has little room left. This collection lets the heap grow. Without it each worker would need a full mark to grow,
      # and on Ruby 3.3 a full mark writes to the code of all methods.
      GC.start if RUBY_VERSION.start_with?("3.3.")
    end
    private_class_method :prepare_objects

    # An object is old once it has survived three collections, and minor collections skip old objects. The full collection comes last,
    # because Ruby sets by it how many old objects may exist before the next one.
    def make_old
      3.times { GC.start(full_mark: false) }
      GC.start
    end
    private_class_method :make_old
  end
end
