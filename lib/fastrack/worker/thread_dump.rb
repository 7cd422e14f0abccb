# frozen_string_literal: true

module Fastrack
  # The backtraces of all threads, for the log when a request takes too long (see crates/engine/src/watchdog.rs). Made in a
  # signal handler.
  module ThreadDump
    # Frames of the server itself.
    OWN = ["#{__dir__}.rb:", "#{__dir__}/thread_dump.rb:", "#{__dir__}/engine_settings.rb:"].freeze

    module_function

    # @return [String] the main thread first; UTF-8, whatever paths and names are
    def text
      threads = Thread.list
      main = Thread.main
      [main, *(threads - [main])].map { |thread| describe(thread) }.join.force_encoding(Encoding::UTF_8).scrub
    end

    # Without the server's frames below the app, and those of this signal handler above.
    def describe(thread)
      # A thread that has just ended has none.
      frames = thread.backtrace || []
      frames = frames.drop_while { |frame| own?(frame) || frame.include?("backtrace'") }.take_while { |frame| !own?(frame) }
      name = thread == Thread.main ? "the main thread" : "a thread#{" (#{thread.name})" if thread.name}"
      ["  #{name}:\n", *frames.map { |frame| "    #{frame}\n" }].map(&:b).join
    end

    def own?(frame)
      frame.start_with?(*OWN)
    end
    private_class_method :describe, :own?
  end
end
