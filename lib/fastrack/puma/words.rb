# frozen_string_literal: true

require_relative "../configuration/options"

module Fastrack
  # The words of Puma's dsl.rb, from Puma 5 to 8. A word has Puma's effect, or the nearest effect. A word without one gets a warning, or the
  # file is refused. The table in docs/migrate.md lists all of them.
  module PumaWords
    # Words that only set an option.
    OPTIONS = {
      pidfile: :Pid, directory: :WorkingDirectory, first_data_timeout: :HeaderTimeout, worker_timeout: :WorkerTimeout,
      worker_boot_timeout: :WorkerBootTimeout, http_content_length_limit: :MaxBodySize, enable_keep_alives: :KeepAlive,
      early_hints: :EarlyHints, preload_app!: :PreloadApp
    }.freeze

    # Hooks by name. Some have several names.
    HOOKS = {
      before_fork: :before_fork, before_worker_fork: :before_worker_fork, on_worker_fork: :before_worker_fork,
      after_worker_fork: :after_worker_fork, after_worker_boot: :after_worker_fork,
      before_worker_boot: :before_worker_boot, on_worker_boot: :before_worker_boot,
      before_worker_shutdown: :before_worker_shutdown, on_worker_shutdown: :before_worker_shutdown,
      after_worker_shutdown: :after_worker_shutdown, after_booted: :after_booted, on_booted: :after_booted,
      after_stopped: :after_stopped, on_stopped: :after_stopped, before_restart: :before_restart, on_restart: :before_restart,
      before_thread_start: :before_thread_start, on_thread_start: :before_thread_start,
      before_thread_exit: :before_thread_exit, on_thread_exit: :before_thread_exit, out_of_band: :out_of_band,
      before_refork: :before_refork, on_refork: :before_refork
    }.freeze

    # Words without effect: the values that describe what Fastrack does, and the warning for other values (nil: none).
    WITHOUT_EFFECT = {
      silence_single_worker_warning: [[], nil], silence_fork_callback_warning: [[], nil], nakayoshi_fork: [[], nil],
      after_refork: [[], "the worker that others are forked from serves no more; after_fork hooks run in them"],
      bind_to_activated_sockets: [["only", false], "systemd's sockets are always used, and then no other address is"],
      idle_timeout: [[], "the server does not stop by itself; let its supervisor stop it"],
      drain_on_shutdown: [[true], "TERM always serves the clients in the backlog; QUIT leaves them"],
      restart_command: [[], "USR2 runs the command that started the server"],
      debug: [[false], "there is no debug log; PWR logs the workers' backtraces"],
      log_formatter: [[], "LogFormat says what the server's lines look like"],
      max_fast_inline: [[], "waiting clients are served in their order; max_keep_alive limits requests per connection"],
      raise_exception_on_sigterm: [[false], "after TERM the exit status is 0"],
      extra_runtime_dependencies: [[[]], "USR2 starts the new master with its Gemfile"],
      worker_check_interval: [[], "the master does not poll its workers"],
      worker_culling_strategy: [%i[youngest] + %w[youngest], "TTOU stops the worker with the highest number"],
      queue_requests: [[true], "requests are always received before a worker takes them; enable_keep_alives false ends keep-alive"],
      shutdown_debug: [[false], "a worker that does not finish logs its backtraces in any case"],
      wait_for_less_busy_worker: [[true, 0.005], "only idle workers accept clients"],
      io_selector_backend: [[:auto, "auto"], "the engine chooses it"],
      mutate_stdout_and_stderr_to_sync_on_write: [[true], "logs are always written at once"],
      daemonize: [[false], "start the server with `fastrack -d`"]
    }.freeze

    # Words that are refused, because ignoring them would do harm.
    REFUSED = {
      app: "put the app into config.ru: run ->(env) { ... }",
      tcp_mode!: "only HTTP is served", tcp_mode: "only HTTP is served"
    }.freeze

    OPTIONS.each do |word, name|
      define_method(word) { |value = true| __option__(name, value, word) }
    end

    HOOKS.each do |word, event|
      define_method(word) { |key = nil, &block| @__puma__.add(event, key, &block) }
    end

    WITHOUT_EFFECT.each do |word, (as_is, reason)|
      define_method(word) do |value = true, *, **options, &_block|
        __say__("#{word} has no effect: #{reason}") unless reason.nil? || as_is.include?(value) || options[:on_force]
        @__puma__.options[word] = value
      end
    end

    REFUSED.each do |word, reason|
      define_method(word) { |*, **, &_block| raise ConfigurationError, "#{word} is not for this server: #{reason}" }
    end

    # @param place [String] tcp://, unix://, with parameters
    def bind(place)
      address = Address.parse(place).with_defaults(tries: ConfigFile::TRIES)
      __store__(:listen, [*@__words__[:listen]&.value, address].uniq.freeze)
    rescue ArgumentError => e
      raise ConfigurationError, "bind #{e.message}; got #{place.inspect[0, 200]}"
    end

    # @param options [Hash] Puma's: cert, key; verify_mode "none"
    def ssl_bind(host, port, options = {})
      place = "ssl://#{Listener.authority(host)}:#{port}"
      address = Address.parse(place, options).with_defaults(tries: ConfigFile::TRIES)
      __store__(:listen, [*@__words__[:listen]&.value, address].uniq.freeze)
    rescue ArgumentError => e
      raise ConfigurationError, "ssl_bind #{e.message}; got #{place.inspect[0, 200]}"
    end

    def port(port, host = nil) = bind("tcp://#{Listener.authority(host || default_host)}:#{port}")

    # The number of requests is ignored.
    def fork_worker(_requests = nil)
      __option__(:Refork, true, :fork_worker)
    end

    def clear_binds!
      @__words__.delete(:listen)
    end

    attr_reader :default_host

    def set_default_host(host) # rubocop:disable Naming/AccessorMethodName -- Puma's
      @default_host = host
    end

    # Rounds down, as Puma does: `Concurrent.available_processor_count` is 1.5 where a cgroup gives that much.
    def workers(count)
      count = count.to_i if count.is_a?(Float)
      given = count.nil? || count.to_s == "0" ? 1 : count
      number = __option__(:MaxWorkers, given, :workers).value
      @__puma__.options[:workers] = number == :auto ? Etc.nprocessors : number
      __say__("workers 0: a master and one worker, where Puma has one process") if count.to_s == "0"
    end

    def threads(min, max = min)
      least, most = [min, max].map { |number| Option::Types.integer(number.is_a?(Float) ? number.to_i : number, 0..) }
      raise ArgumentError, "needs a maximum of 1 or more that is not below the minimum" if most < [least, 1].max

      __say__("threads #{most}: #{Option::MOST_THREADS} is the most here") if most > Option::MOST_THREADS
      __option__(:MaxThreads, most.clamp(..Option::MOST_THREADS), :threads)
    rescue ArgumentError => e
      raise ConfigurationError, "threads #{e.message}; got #{[min, max].uniq.join(", ")}"
    end

    # Streams, and requests that the app marks with `puma.mark_as_io_bound`, hold no thread. Puma has any number.
    def max_io_threads(most)
      most = most.clamp(..Option::MOST_STREAMS) if most.is_a?(Numeric)
      __option__(:MaxStreams, most == Float::INFINITY ? Option::MOST_STREAMS : most, :max_io_threads)
      @__puma__.options[:max_io_threads] = most
    end

    # 0 closes connections after each response.
    def persistent_timeout(seconds)
      return __option__(:KeepAlive, false, :persistent_timeout) if seconds.to_s == "0"

      __option__(:KeepAliveTimeout, seconds, :persistent_timeout)
    end

    def max_keep_alive(requests)
      __option__(:KeepAliveRequests, requests == Float::INFINITY ? 0 : requests, :max_keep_alive)
    end

    # Sets the monitor's socket or port, for `fastrack status` and Prometheus. The monitor does not answer pumactl.
    def activate_control_app(place = "auto", settings = {})
      case place.to_s
      when %r{\Aunix://(.+)} then __option__(:ControlPath, Regexp.last_match(1), :activate_control_app)
      when %r{\Atcp://(.+)} then __control_port__(Regexp.last_match(1), settings[:auth_token])
      else __say__("activate_control_app: the socket is beside the pid file, if there is one; control_path names another")
      end
    end

    # The lower of this limit and `force_shutdown_after` counts.
    def worker_shutdown_timeout(seconds)
      @__shutdown__[:worker_shutdown_timeout] = Option::BY_NAME[:GracefulTimeout].coerce(seconds, "worker_shutdown_timeout")
    end

    def force_shutdown_after(seconds = :forever)
      return @__shutdown__.delete(:force_shutdown_after) if seconds.to_s == "forever"

      seconds = 0 if seconds.to_s == "immediately"
      @__shutdown__[:force_shutdown_after] = Option::BY_NAME[:GracefulTimeout].coerce(seconds, "force_shutdown_after")
    end

    def lowlevel_error_handler(handler = nil, &block)
      __option__(:LowlevelErrorHandler, handler || block || true, :lowlevel_error_handler)
    end

    # Workers load the app: HUP brings new code.
    def prune_bundler(answer = true) # rubocop:disable Style/OptionalBooleanParameter -- Puma's
      return unless answer

      __option__(:PreloadApp, false, :prune_bundler) unless @__words__.key?(:preload_app)
      __say__("prune_bundler: each worker loads the app, with the Gemfile of the start; send USR2 when that has changed")
    end

    def stdout_redirect(stdout = nil, stderr = nil, append = false) # rubocop:disable Style/OptionalBooleanParameter -- Puma's
      __option__(:StdoutPath, stdout&.to_s, :stdout_redirect)
      __option__(:StderrPath, stderr&.to_s, :stdout_redirect)
      __say__("stdout_redirect: logs are appended to, not emptied at the start") if (stdout || stderr) && !append
    end
  end
end
