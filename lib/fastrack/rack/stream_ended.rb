# frozen_string_literal: true

module Fastrack
  # Raised where a stream (docs/threads.md) waits when the server ends it: in the body's `each` or `call`. A write to a client that is gone
  # raises Errno::EPIPE or Errno::ECONNRESET, so that `rescue Errno::EPIPE` is for both.
  class StreamEnded < Errno::EPIPE
  end

  # The client of the stream is gone.
  class ClientGone < StreamEnded
    def initialize(message = "the client is gone") = super
  end

  # The stream's worker was replaced, and ends (Linger). The response ends in order, and the client can connect again.
  class WorkerRetired < StreamEnded
    def initialize(message = "the worker of the stream ends") = super
  end

  # The stream has lasted for longer than StreamTimeout.
  class StreamTimeout < StreamEnded
    def initialize(message = "StreamTimeout is over") = super
  end
end
