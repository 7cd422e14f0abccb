# frozen_string_literal: true

require_relative "../log"
require_relative "../text"

module Fastrack
  # Threads of the app that a forked worker does not have. Ruby's own threads, Active Record's, and threads marked `fork_safe` as for Puma
  # start again in a forked process.
  module LostThreads
    MARKS = [:fork_safe, :"\0__detached_thread__"].freeze

    # Threads of debuggers, which begin anew after a fork: debug, IRB.
    DEBUGGERS = /\A(?:DEBUGGER__|IRB)/.freeze

    # Threads of the server's own: of plugins, and one that watches the time of a hook.
    OWN = File.expand_path("..", __dir__)

    module_function

    # @return [Array<String>] each thread's place in the code, and its name
    def places
      lost = Thread.list.reject do |thread|
        thread == Thread.current || MARKS.any? { |mark| thread.thread_variable_get(mark) } || thread.name.to_s.match?(DEBUGGERS)
      end
      lost.map { |thread| place(thread) }.reject { |place| place.start_with?(OWN) }
    end

    # Logs a line for each thread.
    def tell
      places.each { |place| Log.line("no worker has the thread that the app has begun at #{place}: begin it in after_fork", :warn) }
    end

    def place(thread)
      found = thread.inspect.b[/\S+:\d+(?= )/]
      name = thread.name
      Text.utf8([found, ("(#{name})" if name)].compact.join(" "))
    end
    private_class_method :place
  end
end
