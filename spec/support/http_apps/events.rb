# frozen_string_literal: true

module HttpApps
  # Server-sent events: each is sent when the file of its number is there, which the client's spec writes once it has the
  # one before.
  class Events
    COUNT = 3
    HEADERS = { "content-type" => "text/event-stream", "cache-control" => "no-cache", "x-accel-buffering" => "no" }.freeze

    def call(_env)
      [200, HEADERS.dup, Enumerator.new { |parts| COUNT.times { |number| parts << event(number) } }]
    end

    private

    def event(number)
      sleep 0.005 until File.exist?("event-#{number}")
      "id: #{number}\ndata: event #{number}\n\n"
    end
  end
end
