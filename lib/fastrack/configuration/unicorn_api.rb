# frozen_string_literal: true

require_relative "../error"
require_relative "../listener/address"
require_relative "../log"
require_relative "config_file"
require_relative "option"
require_relative "options"

module Fastrack
  # Methods that the hooks of a unicorn.rb call on their `server`, the Launcher.
  module UnicornServerApi
    # `server.config`: the configuration by word, Unicorn's words included.
    ConfigView = Struct.new(:configuration) do
      # @param word [Symbol, String]
      # @return [Object, nil] nil for an unknown word
      def [](word)
        option = Option::BY_WORD[word.to_sym]
        configuration.public_send(option.word) if option
      end
    end

    # @return [ConfigView]
    def config = ConfigView.new(configuration)

    # @return [Logger] the configured one, or one that writes to stderr
    def logger = configuration.logger || (@logger ||= new_logger)

    # @return [String, nil] the pid file's absolute path, in generation 0 and workers, too
    def pid = (PidFile.new(configuration.pid).path unless configuration.pid.to_s.empty?)

    # @return [Float] seconds that the app may take for a request
    def timeout = configuration.request_timeout

    # @return [Boolean]
    def preload_app = configuration.preload_app

    # Listens on another address; called in after_fork, only in that worker.
    #
    # A worker does not wait for an address that is in use. The worker serves, and tries again in the background. Once the address is free
    # the worker exits, and the after_fork of the replacement listens there.
    #
    # @param place see Address
    # @param settings see Address::SETTINGS; `tries` is 5 (-1: without end), `delay` is 0.5 s
    # @raise [ListenError] when the server cannot listen there for another reason
    def listen(place, settings = {})
      # SO_REUSEPORT lets the replacement listen while the old worker still serves.
      address = Address.parse(place, settings)
                       .with_defaults(tries: ConfigFile::TRIES, backlog: configuration.backlog, reuseport: true)
      return if listeners.any? { |listener| [address.to_s, ":unix:#{address.path}"].include?(listener.to_s) }

      listeners.concat(in_master? ? address.open_with_retries : address.open)
    rescue ArgumentError => e
      raise ConfigurationError, "server.listen #{e.message}"
    rescue AddressInUseError => e
      raise if in_master?

      Log.line("#{e.message}; trying again every #{address.delay} s")
      Thread.new { retry_in_background(address) }
    end

    # A short text, because it appears in the NoMethodError of a hook.
    def inspect = "#<#{self.class} #{listeners.map(&:to_s).join(" ")}>"

    private

    def in_master? = Process.pid == @master_pid

    def retry_in_background(address)
      left = address.tries.negative? ? Float::INFINITY : address.tries - 1
      until (left -= 1).negative?
        sleep(address.delay)
        next unless free?(address)

        Log.line("#{address} is free; a new worker is going to listen there")
        return Process.kill(:TERM, Process.pid)
      end
      Log.line("#{address} is still in use; giving up", :error)
    end

    def free?(address)
      address.open.each(&:close)
      true
    rescue ListenError
      false
    end

    # Required only when needed, because since Ruby 4.0 logger is a gem, which a bundle may lack.
    def new_logger
      require "logger"
      # Logger.new takes an object without `close` for a file name.
      Logger.new($stderr.respond_to?(:close) ? $stderr : STDERR)
    rescue LoadError
      require_relative "plain_logger"
      PlainLogger.new($stderr)
    end
  end

  # Methods that the hooks of a unicorn.rb call on their `worker`, besides `nr`.
  module UnicornWorkerApi
    # Stands for Unicorn's heartbeat file, which hooks chown to another user. Fastrack has no such file.
    NO_FILE = Object.new.tap { |file| def file.chown(_uid, _gid) = 0 }

    def tmp = NO_FILE

    # Switches this worker to another user for good.
    #
    # @param name [String]
    # @param group [String, nil]
    # @raise [ArgumentError] when there is no such user or group
    # @raise [SystemCallError] when this process may not switch
    def user(name, group = nil) = UserGroup.find(name, group).switch
  end
end
