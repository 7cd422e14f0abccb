# frozen_string_literal: true

require_relative "../http_journal"

module HttpApps
  # Leaves callables to be called after its response, and has them note what they see.
  class CallingBack
    def initialize
      @journal = HttpJournal.new
      @old = nil
      @queue = Queue.new
    end

    def call(env)
      path = env["PATH_INFO"]
      register(env, path)
      case path
      when "/raises" then raise ArgumentError, "in the app"
      when "/half" then [200, { "x-half" => "1" }, Enumerator.new { |parts| parts << "one" && raise("in each") }]
      when "/endless" then [200, {}, Enumerator.new { |parts| 20_000.times { parts << ("e" * 50_000) } }]
      when "/sees" then [200, {}, [seen(env)]]
      when "/slow" then [200, { "content-length" => "4" }, ["done"]]
      when "/close" then [200, {}, ["done"].tap { |body| body.define_singleton_method(:close) { raise "in close" } }]
      else [201, { "x-path" => path }, ["done"]]
      end
    end

    private

    def register(env, path)
      case path
      when "/sees", "/none" then nil
      when "/keeps" then keep(lists(env))
      when "/pushes" then @queue.push(:now) && @thread.join
      when "/freezes" then lists(env).each(&:freeze)
      when "/own" then env["rack.after_reply"] = [-> { @journal.write("/own reply") }]
      when "/anew" then anew(env)
      when "/unasked" then env["rack.response_finished"] = [->(*) { @journal.write("/unasked finished") }]
      when "/late" then late(env)
      when "/failing" then failing(env)
      when "/slow" then env["rack.after_reply"] << -> { sleep(0.005) until File.exist?("go") }
      else both(env, path)
      end
    end

    # Deletes the server's lists, and has others under the same keys.
    def anew(env)
      lists = %w[rack.after_reply rack.response_finished].select { |key| env.delete(key) }
      lists.each { |key| env[key] = [->(*) { @journal.write("/anew #{key}") }] }
    end

    def both(env, path)
      env["rack.after_reply"] << -> { @journal.write("#{path} reply 1") }
      env["rack.after_reply"] << -> { @journal.write("#{path} reply 2") }
      return unless env["rack.response_finished"]

      2.times { |nr| env["rack.response_finished"] << finished(path, nr + 1) }
    end

    def finished(path, number)
      lambda do |env, status, headers, error|
        outcome = [env["PATH_INFO"], status.inspect, headers&.keys.inspect, error ? "#{error.class} #{error.message}" : "none"]
        @journal.write("#{path} finished #{number}: #{outcome.join(" ")}")
      end
    end

    # Adds to the list of a request that has used it, and is over.
    def late(env)
      @old&.push(-> { @journal.write("too late") })
      @old = env["rack.after_reply"] << -> { @journal.write("/late reply") }
    end

    def failing(env)
      env["rack.after_reply"] << -> { raise "in a callable" } << 5 << -> { @journal.write("/failing reply") }
    end

    # Has a thread add to lists when their request is over.
    def keep(lists)
      @thread = Thread.new do
        @queue.pop
        lists.each { |list| list << ->(*) { @journal.write("too late") } }
      end
    end

    def lists(env)
      env.values_at("rack.after_reply", "rack.response_finished").compact
    end

    def seen(env)
      %w[rack.after_reply rack.response_finished].map { |key| env[key]&.inspect || "nothing" }.join(" ")
    end
  end
end
