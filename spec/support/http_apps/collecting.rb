# frozen_string_literal: true

module HttpApps
  # Middleware that lets the garbage collector loose on the server around it, from the first request on: what the
  # server keeps out of its sight, or thinks to be where it was, is found out.
  class Collecting
    # A body that moves everything before each of its parts, and at its end.
    Body = Struct.new(:body) do
      def each
        body.each do |part|
          GC.compact
          yield part
        end
      end

      def close
        GC.compact
        body.close if body.respond_to?(:close)
      end
    end

    def initialize(app, mode)
      @app = app
      @mode = mode
    end

    def call(env)
      # The flag leaves full collections out, each of which would take as long as all the others.
      GC.stress = 1 if @mode == :stress
      GC.auto_compact = true if @mode == :auto_compact
      collect
      status, headers, body = @app.call(env)
      collect
      [status, headers, @mode == :compact && only_each?(body) ? Body.new(body) : body]
    end

    private

    def collect = { compact: :compact, auto_compact: :start }[@mode]&.then { |how| GC.send(how) }
    def only_each?(body) = body.respond_to?(:each) && %i[to_ary to_path].none? { |name| body.respond_to?(name) }
  end
end
