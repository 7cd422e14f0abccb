# frozen_string_literal: true

module Fastrack
  # Tells workers that the master has died, however it died: a pipe whose writing end the master alone has open. The
  # kernel closes that end with the master, and the workers' end is at end-of-file from then on.
  class Lifeline
    def initialize
      @reader, @writer = IO.pipe
    end

    # In a worker: lets go of the master's end.
    #
    # @return [Integer] the descriptor to watch
    def hold
      @writer.close
      @reader.fileno
    end

    # In the master, when it has no workers any more.
    def close
      @reader.close
      @writer.close
    end
  end
end
