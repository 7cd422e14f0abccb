# frozen_string_literal: true

require_relative "../listener/address"
require_relative "../error"
require_relative "../listeners"
require_relative "../log"
require_relative "options"
require_relative "unicorn_words"

module Fastrack
  # What the hooks of a unicorn.rb ask of their `server`, which is the Launcher.
  module HookServer
    # What `server.config` gives: the configuration by its words, those of a unicorn.rb among them.
    Settings = Struct.new(:configuration) do
      # @param word [Symbol, String]
      # @return [Object, nil] nil for a word that there is not
      def [](word)
        option = Option::BY_WORD[word.to_sym]
        configuration.public_send(option.word) if option
      end
    end

    # @return [Settings]
    def config
      Settings.new(configuration)
    end

    # @return [Logger] the one of the configuration, or one that writes to stderr
    def logger
      configuration.logger || (@logger ||= new_logger)
    end

    # @return [String, nil] the pid file's absolute path
    def pid
      pid_file&.path
    end

    # @return [Float] seconds that the app may take for a request
    def timeout
      configuration.request_timeout
    end

    # @return [Boolean]
    def preload_app
      configuration.preload_app
    end

    # Listens on one address more: in after_fork, in that worker alone.
    #
    # A worker does not wait for an address that is taken. It serves what it has, and goes on trying; once the address is
    # free it makes room for a successor, whose after_fork then listens there.
    #
    # @param place see Address
    # @param settings see Address::SETTINGS; `tries` is 5 and -1 for ever, `delay` is 0.5 s
    # @raise [ListenError] when it cannot be listened on for another reason
    def listen(place, settings = {})
      # With SO_REUSEPORT a successor may listen there while its predecessor is still at work.
      address = Address.parse(place, settings)
                       .with_defaults(tries: UnicornWords::TRIES, backlog: configuration.backlog, reuseport: true)
      return if listeners.any? { |listener| [address.to_s, ":unix:#{address.path}"].include?(listener.to_s) }

      listeners.concat(in_master? ? Listeners.open_at(address) : address.open)
    rescue ArgumentError => e
      raise ConfigurationError, "server.listen takes #{e.message}"
    rescue AddressInUseError => e
      raise if in_master?

      Log.line("#{e.message}; trying again every #{address.delay} s")
      Thread.new { try_later(address) }
    end

    # Short, for the message of a hook that calls what there is not.
    def inspect
      "#<#{self.class} #{listeners.map(&:to_s).join(" ")}>"
    end

    private

    def in_master?
      Process.pid == @master_pid
    end

    def try_later(address)
      left = address.tries.negative? ? Float::INFINITY : address.tries - 1
      until (left -= 1).negative?
        sleep(address.delay)
        next unless free?(address)

        Log.line("#{address} is free; a new worker is going to listen there")
        return Process.kill(:TERM, Process.pid)
      end
      Log.line("#{address} is still in use; giving up")
    end

    def free?(address)
      address.open.each(&:close)
      true
    rescue ListenError
      false
    end

    # Not before it is asked for: from Ruby 4.0 on it is a gem, which a bundle has or has not.
    def new_logger
      require "logger"
      Logger.new($stderr)
    end
  end
end
