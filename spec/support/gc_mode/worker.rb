# frozen_string_literal: true

# Required by servers that are to be tested with the collector in a mode (see GcMode): by RUBYOPT, so before anything of Fastrack's.
module GcMode
  # Changes Fastrack::Worker as soon as it is defined.
  #
  # `stress`: the collector runs at each allocation while the extension has the thread, but not while the app has it.
  # What the extension calls of the app's (each, close, to_s) is under it, too.
  # `compact`: the collector moves objects whenever it runs (master and workers), and it runs before and after the app.
  module Worker
    MODE = ENV.fetch("FASTRACK_GC")

    # The app, with something done before and after it.
    Around = Struct.new(:app, :before, :after) do
      def call(env)
        before.call
        app.call(env)
      ensure
        after.call
      end
    end

    # Left alone under `stress`; between two collections under `compact`.
    AROUND = { "stress" => [-> { GC.stress = false }, -> { GC.stress = true }], "compact" => [GC.method(:start)] * 2 }.freeze

    private

    def serve(channel)
      @app = Around.new(@app, *AROUND.fetch(MODE))
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
