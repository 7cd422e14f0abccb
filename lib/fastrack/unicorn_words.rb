# frozen_string_literal: true

require_relative "address"
require_relative "error"
require_relative "option"

module Fastrack
  # What a unicorn.rb has beyond words with one value each, for ConfigFile.
  module UnicornWords
    # Words by which a file is known to be a unicorn.rb; and those of Rhebok's that stand in their places.
    MARKS = %i[worker_processes listen preload_app].freeze
    RHEBOK_MARKS = %i[max_workers host port path reuseport].freeze

    # Unicorn's words that need nothing done. A request whose client has left by the time of its turn is dropped in any
    # case; bodies are rewindable, and in memory up to a size of our own.
    WITHOUT_EFFECT = %i[check_client_connection client_body_buffer_size rewindable_input worker_exec].freeze

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

    WITHOUT_EFFECT.each { |word| define_method(word) { |*| nil } }
  end
end
