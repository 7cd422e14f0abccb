# frozen_string_literal: true

require_relative "../http_journal"

module HttpApps
  # Leaves callables to be called after its response, and has them note what they see.
  class CallingBack
    def initialize
      @journal = HttpJournal.new
      @queue = Queue.new
    end

    def call(env)
      path = env["PATH_INFO"]
      register(env, path)
      case path
      when "/raises" then raise ArgumentError, "in the app"
      when "/half" then [200, { "x-half" => "1" }, Enumerator.new { |parts| parts << "one" && raise("in each") }]
      when "/endless" then [200, {}, Enumerator.new { |parts| 20_000.times { parts << ("e" * 50_000) } }]
      when "/sees" then [200, {}, [%w[rack.after_reply rack.response_finished].map { |key| env[key]&.inspect || "nothing" }.join(" ")]]
      when "/slow" then [200, { "content-length" => "4" }, ["done"]]
      when "/close" then [200, {}, ["done"].tap { |body| body.define_singleton_method(:close) { raise "in close" } }]
      else [201, { "x-path" => path }, ["done"]]
      end
    end

    private

    def register(env, path)
      lists = env.values_at("rack.after_reply", "rack.response_finished").compact
      case path
      when "/sees", "/none" then nil
      # A thread adds to the lists when their request is over.
      when "/keeps" then @thread = Thread.new { @queue.pop && lists.each { |list| list << note("too late") } }
      when "/pushes" then @queue.push(:now) && @thread.join
      when "/freezes" then lists.each(&:freeze)
      when "/own" then env["rack.after_reply"] = [note("/own reply")]
      # Deletes the server's lists, and has others under the same keys.
      when "/anew" then %w[rack.after_reply rack.response_finished].each { |key| env[key] = [note("/anew #{key}")] if env.delete(key) }
      when "/unasked" then env["rack.response_finished"] = [note("/unasked finished")]
      when "/late" then late(env)
      when "/failing" then env["rack.after_reply"] << -> { raise "in a callable" } << 5 << note("/failing reply")
      when "/slow" then env["rack.after_reply"] << -> { sleep(0.005) until File.exist?("go") }
      else both(env, path)
      end
    end

    def note(text) = ->(*) { @journal.write(text) }

    def both(env, path)
      2.times { |nr| env["rack.after_reply"] << note("#{path} reply #{nr + 1}") }
      2.times { |nr| env["rack.response_finished"]&.push(finished(path, nr + 1)) }
    end

    def finished(path, number)
      lambda do |env, status, headers, error|
        outcome = [env["PATH_INFO"], status.inspect, headers&.keys.inspect, error ? "#{error.class} #{error.message}" : "none"]
        @journal.write("#{path} finished #{number}: #{outcome.join(" ")}")
      end
    end

    # Adds to the list of a request that has used it, and is over.
    def late(env)
      @old&.push(note("too late"))
      @old = env["rack.after_reply"] << note("/late reply")
    end
  end
end
