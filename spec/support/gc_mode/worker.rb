# frozen_string_literal: true

# Required by servers that are to be tested with the garbage collector in a mode (see GcMode): by RUBYOPT, so before
# anything of Fastrack's.
module GcMode
  # Changes Fastrack::Worker as soon as it is defined.
  #
  # `stress`: the collector runs at each allocation while the extension has the thread, but not while the app has it.
  # What the extension calls of the app's (each, close, to_s) is under it, too.
  # `compact`: the collector moves objects whenever it runs (master and workers), and it runs before and after the app.
  module Worker
    MODE = ENV.fetch("FASTRACK_GC")

    # The app, left alone.
    class Calm
      def initialize(app)
        @app = app
      end

      def call(env)
        GC.stress = false
        @app.call(env)
      ensure
        GC.stress = true
      end
    end

    # The app, between two collections.
    class Moved
      def initialize(app)
        @app = app
      end

      def call(env)
        GC.start
        @app.call(env)
      ensure
        GC.start
      end
    end

    private

    def serve(channel)
      @app = { "stress" => Calm, "compact" => Moved }.fetch(MODE).new(@app)
      super
    end

    def run(limit)
      GC.stress = true if MODE == "stress"
      super
    ensure
      GC.stress = false
    end
  end

  GC.auto_compact = true if Worker::MODE == "compact"

  defined = TracePoint.new(:end) do |event|
    if event.self.name == "Fastrack::Worker"
      event.self.prepend(Worker)
      defined.disable
    end
  end
  defined.enable
end
