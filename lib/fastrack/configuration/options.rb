# frozen_string_literal: true

require "socket"
require_relative "../listener/address"
require_relative "option"

module Fastrack
  # One thing that can be set: as an option (`-O MaxWorkers=3`) or as a word of a ConfigFile (`max_workers 3`).
  class Option
    # @return [Symbol] the option's name, :MaxWorkers
    attr_reader :name
    # @return [Symbol] the word for a ConfigFile and for Configuration's readers, :max_workers
    attr_reader :word
    attr_reader :default
    # @return [String] one line for `rackup -s Fastrack --help`
    attr_reader :help

    # @param block [Proc] turns a value into one of the option's type, see OptionType
    def initialize(name, word, default, help, &block)
      @name = name
      @word = word
      @default = default
      @help = help
      @type = block
    end

    # @param source [String] where the value was written, for the message
    # @raise [ConfigurationError] when the value does not fit the type
    def coerce(value, source = "option #{name}")
      @type.call(value)
    rescue ArgumentError => e
      given = value == true ? "no value was given" : "it is #{value.inspect[0, 200]}"
      raise ConfigurationError, "#{source} takes #{e.message}: #{given}"
    end

    # Words that a ConfigFile gives a block.
    HOOKS = %i[before_fork after_fork before_exec after_worker_ready after_worker_exit lowlevel_error_handler].freeze

    # Whether a ConfigFile gives it as a block.
    def hook?
      HOOKS.include?(word)
    end

    type = OptionType
    # Every option, with what Rhebok's users know first.
    ALL = [
      new(:ConfigFile, :config_file, nil, "a file of settings in Ruby") { |value| type.text(value) },
      new(:Host, :host, "0.0.0.0", "the address to listen on") { |value| type.text(value) },
      new(:Port, :port, 9292, "the port to listen on (0: any that is free)") { |value| type.integer(value, 0..65_535) },
      new(:Path, :path, nil, "a unix socket to listen on, instead of Host and Port") { |value| type.text(value) },
      new(:BackLog, :backlog, Socket::SOMAXCONN, "connections that may wait to be accepted") do |value|
        type.integer(value, 1..2_147_483_647)
      end,
      new(:ReusePort, :reuseport, false, "listen with SO_REUSEPORT") { |value| type.boolean(value) },
      new(:MaxWorkers, :max_workers, 5, "how many worker processes serve") { |value| type.integer(value, 1..) },
      new(:MaxRequestPerChild, :max_request_per_child, 1000, "requests until a worker is replaced (0: never)") do |value|
        type.integer(value, 0..)
      end,
      new(:MinRequestPerChild, :min_request_per_child, nil, "draw that number for each worker, from here on") do |value|
        type.integer(value, 0..)
      end,
      new(:Timeout, :timeout, 300.0, "seconds that a client may keep a worker waiting") do |value|
        type.seconds(value, zero: false)
      end,
      new(:OobGC, :oobgc, false, "collect garbage between requests") { |value| type.boolean(value) },
      new(:MaxGCPerRequest, :max_gc_per_request, 5, "requests between two such collections") do |value|
        type.integer(value, 1..)
      end,
      new(:MinGCPerRequest, :min_gc_per_request, nil, "draw that number for each worker, from here on") do |value|
        type.integer(value, 1..)
      end,
      new(:ChunkedTransfer, :chunked_transfer, false, "send bodies of unknown length in chunks") { |value| type.boolean(value) },
      new(:SpawnInterval, :spawn_interval, 0.0, "seconds between two spawns of workers") do |value|
        type.seconds(value, zero: true)
      end,
      new(:ErrRespawnInterval, :err_respawn_interval, 1.0, "seconds to wait after a worker has failed") do |value|
        type.seconds(value, zero: true)
      end,
      new(:BeforeFork, :before_fork, nil, "called in the master before each fork") { |value| type.callable(value) },
      new(:AfterFork, :after_fork, nil, "called in each worker after its fork") { |value| type.callable(value) },
      new(:PathInfo, :path_info, "encoded", "PATH_INFO: encoded, as it was sent, or decoded, as Rhebok did") do |value|
        type.choice(value, %w[encoded decoded])
      end,
      new(:MaxBodySize, :max_body_size, nil, "bytes that a request's body may have") { |value| type.integer(value, 0..) },
      new(:StreamBody, :stream_body, false, "call the app while the body comes in") { |value| type.boolean(value) },
      new(:MaxRequestTarget, :max_request_target, 16_384, "bytes that a request's target may have") do |value|
        type.integer(value, 1..1_048_576)
      end,
      new(:MaxHeaderSize, :max_header_size, 65_536, "bytes that a request's line and headers may have") do |value|
        type.integer(value, 1..1_048_576)
      end,
      new(:MaxHeaderFields, :max_header_fields, 128, "headers that a request may have") { |value| type.integer(value, 1..1024) },
      new(:KeepAlive, :keep_alive, true, "keep connections open from request to request") { |value| type.boolean(value) },
      new(:KeepAliveTimeout, :keep_alive_timeout, 95.0, "seconds that a connection may be idle between two requests") do |value|
        type.seconds(value, zero: false)
      end,
      new(:KeepAliveRequests, :keep_alive_requests, 0, "requests that one connection may carry (0: any number)") do |value|
        type.integer(value, 0..4_294_967_295)
      end,
      new(:HeaderTimeout, :header_timeout, nil, "seconds that a request's headers may take") do |value|
        type.seconds(value, zero: false)
      end,
      new(:BodyTimeout, :body_timeout, nil, "seconds that a client may pause in a request's body") do |value|
        type.seconds(value, zero: false)
      end,
      new(:WriteTimeout, :write_timeout, nil, "seconds that a client may take nothing of a response") do |value|
        type.seconds(value, zero: false)
      end,
      new(:ResponseBuffer, :response_buffer, 1_048_576, "bytes of a response that may wait while the app goes on") do |value|
        type.integer(value, 0..)
      end,
      new(:HandOver, :hand_over, true, "pass connections of busy workers to idle ones") { |value| type.boolean(value) },
      new(:GracefulTimeout, :graceful_timeout, 30.0, "seconds that workers get to finish when the server stops") do |value|
        type.seconds(value, zero: true)
      end,
      new(:DrainDelay, :drain_delay, 0.0, "seconds to go on serving after TERM") { |value| type.seconds(value, zero: true) },
      new(:BootTimeout, :boot_timeout, 120.0, "seconds that a new master gets to be ready after USR2") do |value|
        type.seconds(value, zero: false)
      end,
      new(:AutoQuit, :auto_quit, true, "have the old master end when the new one is ready") { |value| type.boolean(value) },
      new(:BeforeExec, :before_exec, nil, "called before a new master is started") { |value| type.callable(value) },
      new(:Pid, :pid, nil, "a file for the master's pid") { |value| type.text(value) },
      new(:Listen, :listen, nil, "addresses to listen on, instead of Host, Port and Path") do |value|
        type.addresses(value)
      end,
      new(:RequestTimeout, :request_timeout, 60.0, "seconds that the app may take for a request (0: any)") do |value|
        type.seconds(value, zero: true)
      end,
      new(:PreloadApp, :preload_app, true, "load the app once, in the master") { |value| type.boolean(value) },
      new(:WorkingDirectory, :working_directory, nil, "the folder to run in") { |value| type.text(value) },
      new(:StdoutPath, :stdout_path, nil, "a file for what is written to stdout") { |value| type.text(value) },
      new(:StderrPath, :stderr_path, nil, "a file for what is written to stderr") { |value| type.text(value) },
      new(:Umask, :umask, nil, "the mask for files that are made (octal)") { |value| type.mode(value) },
      new(:User, :user, nil, "the user, or user:group, that workers run as") { |value| type.account(value) },
      new(:Logger, :logger, nil, "what hooks get as server.logger") { |value| type.logger(value) },
      new(:AfterWorkerReady, :after_worker_ready, nil, "called in each worker that is ready") do |value|
        type.callable(value)
      end,
      new(:AfterWorkerExit, :after_worker_exit, nil, "called in the master when a worker has ended") do |value|
        type.callable(value)
      end,
      new(:EarlyHints, :early_hints, false, "let the app send 103 Early Hints") { |value| type.boolean(value) },
      new(:DefaultMiddleware, :default_middleware, true, "have `fastrack` put rackup's middleware around the app") do |value|
        type.boolean(value)
      end,
      new(:LowlevelErrorHandler, :lowlevel_error_handler, nil, "makes the response when the app raises") do |value|
        type.callable(value)
      end
    ].freeze

    # Other spellings that Rhebok's users have.
    ALIASES = { Chunked_Transfer: :ChunkedTransfer }.freeze

    BY_NAME = ALL.to_h { |option| [option.name, option] }
                 .then { |options| options.merge(ALIASES.transform_values { |name| options.fetch(name) }) }.freeze
    # Words of a ConfigFile that say the same as an option's own: Unicorn's, and one for Timeout that is never mistaken for
    # Unicorn's `timeout`.
    OTHER_WORDS = { worker_processes: :MaxWorkers, client_timeout: :Timeout }.freeze

    BY_WORD = ALL.to_h { |option| [option.word, option] }
                 .merge(OTHER_WORDS.transform_values { |name| BY_NAME.fetch(name) }).freeze
  end
end
