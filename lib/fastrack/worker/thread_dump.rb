# frozen_string_literal: true

module Fastrack
  # What this process's threads are at, for the log: see crates/engine/src/watchdog.rs. Made in a signal handler.
  module Testimony
    module_function

    # @return [String] the backtrace of each thread, the main one first; UTF-8, whatever paths and names are
    def give
      threads = Thread.list
      main = Thread.main
      [main, *(threads - [main])].map { |thread| describe(thread) }.join.force_encoding(Encoding::UTF_8).scrub
    end

    # A thread that has ended by now has no frames.
    def describe(thread)
      frames = thread.backtrace || []
      # What is below the app is the server's own, and so are the signal handler's frames.
      frames = frames.drop_while { |frame| own?(frame) || frame.include?("backtrace'") }.take_while { |frame| !own?(frame) }
      name = thread == Thread.main ? "the main thread" : "a thread#{" (#{thread.name})" if thread.name}"
      ["  #{name}:\n", *frames.map { |frame| "    #{frame}\n" }].map(&:b).join
    end
    private_class_method :describe

    def own?(frame)
      frame.start_with?("#{__dir__}/worker.rb:", "#{__dir__}/testimony.rb:")
    end
    private_class_method :own?
  end
end
