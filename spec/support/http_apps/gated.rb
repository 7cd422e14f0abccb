# frozen_string_literal: true

require_relative "../http_journal"

module HttpApps
  # Notes each call, with its worker, and answers at once; under /gate/NAME when the spec has written the file NAME. So a
  # spec can have any number of clients wait for one worker, and know when it goes on.
  class Gated
    GATE = "/gate/"

    def initialize
      @journal = HttpJournal.new
    end

    def call(env)
      path = env["PATH_INFO"]
      @journal.write("#{Process.pid} #{path}")
      exit(3) if path == "/exit"
      pass(path.delete_prefix(GATE)) if path.start_with?(GATE)
      [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
    end

    private

    def pass(gate)
      sleep 0.002 until File.exist?(gate)
    end
  end
end
