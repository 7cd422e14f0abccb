# frozen_string_literal: true

module Fastrack
  # The backtraces of all threads, for the log when a request takes too long (see crates/engine/src/ending/mod.rs). Made in a
  # signal handler.
  module ThreadDump
    # Frames of the server itself.
    OWN = ["#{__dir__}.rb:", *%w[thread_dump engine_settings threads].map { |file| "#{__dir__}/#{file}.rb:" }].map(&:b).freeze

    # Where the worker was forked.
    MASTER = "#{File.expand_path("../master", __dir__)}/".b.freeze

    # Frames in which a thread answers requests, or waits for one.
    ENGINE = /in [`'](?:Fastrack::Engine#)?(?:run|serve)'\z/.freeze

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
      all = (thread.backtrace || []).map(&:b)
      frames = all.drop_while { |frame| (own?(frame) && !frame.match?(ENGINE)) || frame.include?("backtrace'") }
      frames = frames.take_while { |frame| !own?(frame) && !frame.start_with?(MASTER) }
      name = thread == Thread.main ? "the main thread" : "a thread#{" (#{thread.name})" if thread.name}".b
      idle = " idle, it waits for a request" if frames.empty? && all.any? { |frame| own?(frame) && frame.match?(ENGINE) }
      ["  #{name}:#{idle}\n", *frames.map { |frame| "    #{frame}\n" }].join
    end

    def own?(frame) = frame.start_with?(*OWN)
    private_class_method :describe, :own?
  end
end
