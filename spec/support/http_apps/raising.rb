# frozen_string_literal: true

require_relative "../http_journal"

module HttpApps
  # Fails in the way that the path names, or answers with what no server can send.
  class Raising
    # Raises when it is asked for its message.
    class Mute < StandardError
      def message = raise("no message")
    end

    # A rack.errors of the app's own.
    Errors = Struct.new(:journal) do
      def puts(text) = journal.write("errors: #{text.lines.first.chomp}")
      def write(text) = journal.write("errors: #{text}")
      def flush = journal.write("flushed")
    end

    # By path: no StandardErrors, but none that is meant for the process.
    GRAVE = {
      "/exception" => Exception, "/script-error" => ScriptError, "/not-implemented" => NotImplementedError,
      "/load-error" => LoadError, "/no-memory" => NoMemoryError, "/security" => SecurityError, "/syntax" => SyntaxError
    }.freeze

    BAD_RESPONSES = {
      "/nil" => nil, "/string" => "200", "/short" => [200, {}], "/long" => [200, {}, [], 1], "/hash" => { status: 200 },
      "/status-nil" => [nil, {}, []], "/status-text" => ["ok", {}, []], "/status-99" => [99, {}, []],
      "/status-1000" => [1000, {}, []], "/status-negative" => [-200, {}, []], "/headers-nil" => [200, nil, []],
      "/headers-number" => [200, 5, []], "/body-nil" => [200, {}, nil], "/body-number" => [200, {}, 5]
    }.freeze

    def call(env)
      path = env["PATH_INFO"]
      raise GRAVE.fetch(path), "grave trouble" if GRAVE.key?(path)
      return BAD_RESPONSES.fetch(path) if BAD_RESPONSES.key?(path)

      case path
      when "/standard" then fail_somewhere
      when "/recursion" then endless(1)
      when "/throw" then throw(:nobody_catches_this)
      when "/frozen" then "a".dup.freeze << "b"
      when "/mute" then raise Mute
      when "/binary" then raise "caf\xE9\0".b
      when "/own-errors" then (env["rack.errors"] = Errors.new(HttpJournal.new)) && raise("for my own log")
      else [200, { "content-type" => "text/plain" }, ["fine"]]
      end
    end

    private

    def fail_somewhere = raise(ArgumentError, "trouble on purpose")
    def endless(depth) = endless(depth + 1) + 1
  end
end
