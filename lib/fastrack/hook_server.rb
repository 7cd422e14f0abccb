# frozen_string_literal: true

require "logger"
require_relative "address"
require_relative "error"
require_relative "listeners"
require_relative "log"

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
      configuration.logger || (@logger ||= Logger.new($stderr))
    end

    # @return [String, nil] the pid file's path
    def pid
      configuration.pid && File.expand_path(configuration.pid)
    end

    # @return [Integer]
    def worker_processes
      configuration.max_workers
    end

    # @return [Float] seconds that the app may take for a request
    def timeout
      configuration.request_timeout
    end

    # @return [Boolean]
    def preload_app
      configuration.preload_app
    end
  end
end
