# frozen_string_literal: true

require_relative "../http_journal"

module HttpApps
  # Answers with the env and the body as they reached it, and notes each call: what must not reach an app is not noted.
  class Echo
    # Env values that can be shown as they are; of the others the class is shown.
    PLAIN = [String, Integer, true, false, nil, Array].freeze

    # What a response of this app says.
    def self.read(response) = Marshal.load(response.body) # rubocop:disable Security/MarshalLoad -- written by the app below

    def initialize = @journal = HttpJournal.new

    def call(env)
      @journal.write("#{env["REQUEST_METHOD"]} #{env["REQUEST_URI"]}")
      input = env["rack.input"]
      body = input ? input.read : ""
      seen = env.transform_values { |value| PLAIN.any? { |kind| kind === value } ? value : value.class.name }
      [200, { "content-type" => "application/octet-stream" }, [Marshal.dump("env" => seen, "body" => body)]]
    end
  end
end
