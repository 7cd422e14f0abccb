# frozen_string_literal: true

require_relative "../listener/address"
require_relative "../error"
require_relative "options"

module Fastrack
  # What a unicorn.rb has beyond words with one value each, for ConfigFile.
  module UnicornWords
    # Words by which a file is known to be a unicorn.rb; and those of Rhebok's that stand in their places.
    MARKS = %i[worker_processes listen preload_app].freeze
    RHEBOK_MARKS = %i[max_workers host port path reuseport].freeze

    # Unicorn's words that have no effect: the values that say what is so anyway, and what is to be told where another one
    # is given, for somebody might wait for its effect.
    WITHOUT_EFFECT = {
      # A request whose client has left by the time of its turn is dropped in any case.
      check_client_connection: [[true, false], nil],
      rewindable_input: [[true], "bodies are rewindable; stream_body has the app called while one comes in"],
      client_body_buffer_size: [[], "bodies up to 1 MiB are kept in memory, larger ones in a file"],
      worker_exec: [[false], "workers are forked off the master; preload_app false has each load the app"],
      trust_x_forwarded: [[false], "rack.url_scheme is as the client has connected; Rack::Request#scheme heeds X-Forwarded-Proto"]
    }.freeze

    # What Unicorn does where a file says nothing else about a listener: a server that is about to end may still be there.
    TRIES = 5

    # @param place see Address
    # @param settings see Address::SETTINGS
    # @raise [ConfigurationError]
    def listen(place, settings = {})
      return if place.nil?

      address = Address.parse(place, settings).with_defaults(tries: TRIES)
      listed = @__words__[:listen]&.value || []
      __store__(:listen, [*listed.reject { |one| one == address }, address].freeze)
    rescue ArgumentError => e
      raise ConfigurationError, "listen takes #{e.message}: it is #{[place, *settings].join(" ")[0, 200].inspect}"
    end

    # @param name [String, nil]
    # @param group [String, nil]
    def user(name = true, group = nil)
      __set__(Option::BY_NAME[:User], group ? [name, group] : name, :user)
    end

    WITHOUT_EFFECT.each do |word, (as_is, reason)|
      define_method(word) do |value = true|
        @__useless__ << "ConfigFile #{__place__}: #{word} has no effect: #{reason}" unless reason.nil? || as_is.include?(value)
      end
    end
  end
end
