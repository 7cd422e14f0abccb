# frozen_string_literal: true

module HttpApps
  # Middleware that lets the garbage collector loose on the server around it, from the first request on: what the
  # server keeps out of its sight, or thinks to be where it was, is found out.
  class Collecting
    # A body that moves everything before each of its parts, and at its end.
    class Body
      def initialize(body)
        @body = body
      end

      def each
        @body.each do |part|
          GC.compact
          yield part
        end
      end

      def close
        GC.compact
        @body.close if @body.respond_to?(:close)
      end
    end

    # @param mode [Symbol] :stress collects at each allocation, :compact moves all objects again and again,
    #   :auto_compact lets every full collection move them
    def initialize(app, mode)
      @app = app
      @mode = mode
    end

    def call(env)
      case @mode
      when :stress then stress(env)
      when :compact then compact(env)
      else auto_compact(env)
      end
    end

    private

    # The flag leaves full collections out, each of which would take as long as all the others.
    def stress(env)
      GC.stress = 1
      @app.call(env)
    end

    def compact(env)
      GC.compact
      status, headers, body = @app.call(env)
      GC.compact
      [status, headers, only_each?(body) ? Body.new(body) : body]
    end

    def only_each?(body)
      body.respond_to?(:each) && %i[to_ary to_path].none? { |name| body.respond_to?(name) }
    end

    def auto_compact(env)
      GC.auto_compact = true
      GC.start
      response = @app.call(env)
      GC.start
      response
    end
  end
end
