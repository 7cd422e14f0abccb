# frozen_string_literal: true

require_relative "configuration/app_environment"
require_relative "configuration/config_file"
require_relative "configuration/options"
require_relative "error"
require_relative "listener/address"
require_relative "log"
require_relative "process/start_command"
require_relative "text"

module Fastrack
  # All settings. Precedence: defaults < environment < options < ConfigFile. Each option has a reader with the option's word.
  class Configuration
    include Option::Readers

    # Environment variables that platforms and Procfiles set. The first one that is set counts.
    VARIABLES = {
      MaxWorkers: %w[WEB_CONCURRENCY], Port: %w[PORT], KeepAliveTimeout: %w[PUMA_PERSISTENT_TIMEOUT],
      MaxThreads: %w[PUMA_MAX_THREADS MAX_THREADS RAILS_MAX_THREADS]
    }.freeze

    # Keys that rackup, Rails and Sinatra pass to every handler, and that Fastrack does not use.
    FOREIGN_KEYS = %i[
      DoNotReverseLookup Silent Verbose app builder caching command config daemonize debug debugger development early_hints
      environment eval heapfile ignore_options include log_stdout log_to_stdout options picked pid profile_file profile_mode
      quiet require restart_cmd server user_supplied_options using warn
    ].freeze

    # Flags of `bin/rails server` that outrank a ConfigFile.
    TYPED = { Port: /\A(?:-p|--port\b)/, Host: /\A(?:-b|--binding\b)/, Pid: /\A(?:-P|--pid\b)/ }
            .then { |flags| { **flags, Listen: flags[:Host] } }.freeze

    # The flags, for messages.
    FLAGS = { Port: "-p", Host: "-b", Pid: "-P" }.freeze

    # A Host that is a whole address, as Puma's users give it to `bin/rails server -b`: a path, a URL, host:port.
    WHOLE_ADDRESS = %r{/|\A~|\A[^:]+:\d+\z|\A\[.*\]:\d+\z|\.sock\z|\Aunix:}.freeze
    ONLY_HOST = %r{\Atcp://(?<host>[^:/]+|\[.*\])/?\z}.freeze

    # Options that Listen replaces.
    LISTEN_REPLACES = %i[Host Port Path].freeze

    # Puma's files, by their names: config/puma.rb, puma_staging.rb, config/puma/production.rb.
    PUMA_FILE = %r{(?:\A|/)(?:config/puma/[^/]+|puma[^/]*)\z}.freeze

    # Defaults in development: one process, in which a debugger may hold a request for hours.
    DEVELOPMENT = { MaxWorkers: 1, MaxRequestPerChild: 0, RequestTimeout: 0.0, WorkerBootTimeout: 0.0 }.freeze

    # Defaults with the `fastrack` command and `bin/rails server`, which Rhebok's users do not use.
    UNLIKE_RHEBOK = { MaxWorkers: :auto }.freeze

    # Threads of a Rails app that says nothing of them: Rails' own number for Puma.
    RAILS_THREADS = 3

    # The first of these that exists is read if no ConfigFile is named. With rackup only the first name counts, because an app that used
    # Rhebok may have an unused puma.rb.
    CONFIG_FILES = %w[config/fastrack.rb config/puma/ENVIRONMENT.rb config/puma.rb].freeze

    # @param given [Hash] the handler's options; keys are Symbols or Strings
    # @param overrides [Hash{Symbol => Object}] settings that override a ConfigFile, by option name, already of the options' types
    # @param environment [Hash, ENV]
    # @param output [#puts, nil] gets the line about the ConfigFile; nil: stdout, in the log's format
    # @param warnings [#puts, nil] gets the warnings; nil: the log
    # @raise [ConfigurationError]
    def initialize(given = {}, overrides: {}, environment: ENV, output: nil, warnings: nil)
      @given = given.to_h { |key, value| [key.to_sym, value] }
      @overrides = overrides
      @output = output
      @warnings = warnings
      warn_of_unknown
      # All options are checked, also those that the ConfigFile overrides.
      @assumed, @chosen = known.partition { |option, _, value| assumed?(option.name, value) }.map { |values| coerce(values) }
      read(environment)
    end

    # @param name [Symbol] of an option
    # @return [String] where the option's value was written, for messages: "ConfigFile /srv/app.rb:3: user"
    def source(name) = @sources.fetch(name) { "option #{name}" }

    # Calls a hook with as many arguments as the hook takes: Rhebok's hooks take none, Unicorn's |server, worker|.
    #
    # @param word [Symbol]
    def call_hook(word, *arguments)
      hook = public_send(word) or return
      parameters = (hook.respond_to?(:parameters) ? hook : hook.method(:call)).parameters.map(&:first)
      # Optional parameters count: `proc { |server, worker = nil| }` wants both.
      arguments = arguments.first(parameters.count { |kind| %i[req opt].include?(kind) }) unless parameters.include?(:rest)
      hook.call(*arguments)
    end

    # @return [Boolean] whether this is a developer's server
    def development? = @development

    # @return [Boolean] whether the server was started as Rhebok is: by rackup, without a file of Unicorn's or Puma's
    def rhebok? = @rhebok

    # @return [Boolean] whether max_threads is Rails' number, because nobody has set another
    def rails_threads? = @rails_threads

    # @return [Boolean] whether max_workers is only the first number of workers
    def auto_workers? = @auto_workers

    # @param app [#call, AppFile]
    # @return [#call] the loaded app
    def load_app(app) = app.load(default_middleware: default_middleware, path: puma&.rackup)

    # @param app [#call]
    # @return [#call] the app inside the middleware of a puma.rb
    def wrap(app) = puma ? puma.wrap(app) : app

    # @return [Array<String>] hints for the log: settings and files that this start does not use as its user may expect
    def startup_hints = [usual_workers, unread_files, idle_queue, (RailsFiles::LINE if @rails_files.any?)].compact

    # @return [Array<String>] absolute paths: the server's pid file, and rackup's
    def pid_files = [pid, @given[:pid]].compact.map { |path| Text.expand(path) }.uniq

    # @return [String, nil] line for the log if workers have several threads: RAILS_MAX_THREADS may be meant for another server
    def threads_line
      where = " (#{@variables[:MaxThreads]})" if @variables.key?(:MaxThreads)
      "workers answer up to #{max_threads} requests at once#{where}" if max_threads > 1
    end

    # @return [Array] equal for configurations with equal addresses
    def listen_values = @values.values_at(*LISTEN_REPLACES, :Listen)

    # Draws a request limit. Without a minimum the limit is up to a fifth below the maximum, so that workers started together are not
    # replaced together.
    #
    # @return [Integer] requests after which a worker is replaced; drawn at random for each worker; 0: never
    def draw_request_limit
      most = max_request_per_child
      # 0 means no limit, and must not be drawn by chance.
      most.zero? ? 0 : draw((min_request_per_child || (most - (most / 5))).clamp(1..), most)
    end

    # @return [Integer] requests between two out-of-band collections; drawn at random for each worker
    def draw_gc_interval = draw(min_gc_per_request, max_gc_per_request)

    # @return [ControlEndpoints, nil] where the monitor listens; nil: nowhere. Relative paths start in the working directory at the first
    #   call: the process is in `working_directory` by then, which may be removed later.
    # @raise [ConfigurationError]
    def control
      @control ||= find_control
    end

    # @return [Boolean] whether the monitor listens at the default socket because no other is named; not for Rhebok's users
    def default_control_socket? = control&.path.nil? && control_path != false && @given.key?(:user_supplied_options)

    # @return [PumaExtras, nil] settings of Puma's words that are no options
    attr_reader :puma
    # @return [String, nil] absolute path of the ConfigFile that was read
    attr_reader :file

    # @param name [Symbol] of an option
    def value(name) = @values.fetch(name)

    # @return [Hash{String => Object}] see Reading
    def facts
      { "switches" => [@development, @rhebok, @rails_threads, @auto_workers].map { |switch| switch ? true : false }, "sources" => @sources.transform_keys(&:to_s) }
    end

    protected

    def read(environment)
      overrides = @file ? @overrides.except(:ConfigFile) : @overrides
      chosen = @chosen.merge(ConfigFile: config_path(environment))
      config = read_file(chosen[:ConfigFile], environment)
      @written = config&.__settings__.to_h
      chosen = merge(chosen.compact, @written).merge(overrides)
      @development = development_in?(environment)
      @rhebok = !(@puma_file || @given.key?(:user_supplied_options) || config&.__unicorn__?)
      @variables = variables(environment, chosen)
      from_variables = @variables.to_h { |name, variable| [name, variable_value(name, variable, environment[variable])] }
      @rails_threads = !@rhebok && !config&.__unicorns__? && rails_app? && [chosen, from_variables].none? { |one| one.key?(:MaxThreads) }
      @values = defaults(config).merge(@assumed, from_variables, chosen)
      @values.merge!(@rails_files = rails_files(environment, chosen, config))
      @auto_workers = @values[:MaxWorkers] == :auto
      count_workers if @auto_workers
      @values.freeze
      # Called for its errors. This object may be a copy of another configuration, with that one's `@control`.
      @control = nil
      find_control
    end

    private

    # The file that was read before, else the named file, else a default file that exists.
    def config_path(environment)
      return @file || @chosen[:ConfigFile] if @file || @chosen[:ConfigFile] || @given.dig(:command, :no_config)

      found, *others = default_files(environment)
      @unread = others if found == CONFIG_FILES.first
      found
    end

    def defaults(config)
      usual = @given.key?(:user_supplied_options) ? UNLIKE_RHEBOK : {}
      usual = { **usual, MaxThreads: RAILS_THREADS } if @rails_threads
      usual = { **usual, RequestStart: true } if rails_app?
      Option::DEFAULTS.merge(usual, @development ? DEVELOPMENT : {}, config&.__defaults__.to_h)
    end

    # Whether the app is Rails', which ran with several threads under Puma. It may not be loaded yet.
    def rails_app?
      @rails_app = (defined?(::Rails::Application) || AppEnvironment.rails?(StartCommand.logical_directory)) && true if @rails_app.nil?
      @rails_app
    end

    # @return [Hash{Symbol => Object}] options that RAILS_SERVE_STATIC_FILES changes
    def rails_files(environment, chosen, config)
      return {} if @rhebok || @development || config&.__unicorns__? || chosen.key?(:PublicFiles) || !rails_app?

      require_relative "configuration/rails_files"
      RailsFiles.options(environment, @values)
    end

    def count_workers
      require_relative "process/cpus"
      cpus = CPUs.new
      @values[:MaxWorkers] = [cpus.count, Option::Types::MOST_WORKERS].min
      warn_of("workers auto: #{max_workers} (#{cpus})")
    end

    def usual_workers
      return if !@rhebok || @development || [@variables, @chosen, @written].any? { |one| one.key?(:MaxWorkers) }

      "#{max_workers} workers, Rhebok's default, because no number is set: workers share no memory, so caches and queues in memory and Action Cable's " \
        "async adapter are each worker's own; -O max_workers=1 is one process"
    end

    def unread_files
      "#{@unread.join(" and ")} #{@unread.one? ? "is" : "are"} not read beside #{CONFIG_FILES.first}; keep one of them" if @unread&.any?
    end

    def idle_queue
      return if ENV["SOLID_QUEUE_IN_PUMA"].to_s.empty? || puma&.plugins&.key?(:solid_queue)

      "SOLID_QUEUE_IN_PUMA is set, and nothing runs Solid Queue here: the ConfigFile has no `plugin :solid_queue`"
    end

    def find_control
      return unless control_path || control_listen || (pid && control_path != false)

      require_relative "configuration/control_endpoints"
      ControlEndpoints.new(self)
    end

    def known
      # :pid is rackup's --pid. rackup also writes that file, but only Fastrack keeps its number right across USR2.
      { Pid: @given[:pid] }.merge(@given.except(:pid)).filter_map do |key, value|
        option = Option.find(key)
        # rackup's default for WEBrick is AccessLog: [].
        [option, key, value] if option && !value.nil? && [key, value] != [:AccessLog, []]
      end
    end

    # Whether a Host or Port is only the default of rackup or Rails. rackup's default port is an Integer, and a user's choice a String.
    # Rails lists its user's choices.
    def assumed?(name, value)
      return false unless %i[Host Port].include?(name)

      chosen = @given[:user_supplied_options]
      return !chosen.include?(name) if chosen.respond_to?(:include?)

      name == :Port && @given.key?(:AccessLog) && value.is_a?(Integer)
    end

    def coerce(values)
      values.to_h do |option, key, value|
        source = flag(option.name) || "option #{key == :pid ? :Pid : key}"
        option.name == :Host ? host_or_address(value, source) : [option.name, option.coerce(value, source)]
      end
    end

    # @return [String, nil] the flag that the user of `bin/rails server` has typed
    def flag(name) = (FLAGS[name] if @given.key?(:user_supplied_options) && typed?(name))

    # @return [Array] the option's name, and its value
    def host_or_address(value, source)
      text = Option::BY_NAME[:Host].coerce(value, source)
      only = ONLY_HOST.match(text.b)
      return [:Host, Text.utf8(only[:host])] if only
      return [:Host, text] unless WHOLE_ADDRESS.match?(text.b)

      [:Listen, Option::BY_NAME[:Listen].coerce(text, source)]
    end

    # @return [Hash{Symbol => String}] variables by option. Where the user has chosen a value the variable is not even checked, because the
    #   platform may have set it for another program. An empty variable counts as unset.
    def variables(environment, chosen)
      decided = chosen.key?(:Path) || chosen.key?(:Listen) ? [*chosen.keys, :Port] : chosen.keys
      # rackup's users come from Rhebok, so the app need not be thread-safe.
      decided |= [:MaxThreads] unless @puma_file || @given.key?(:user_supplied_options)
      VARIABLES.except(*decided).transform_values { |names| names.find { |name| !environment[name].to_s.empty? } }.compact
    end

    # WEB_CONCURRENCY=0 is Puma's way to ask for a single process: here, one worker.
    def variable_value(name, variable, value)
      return 1 if name == :MaxWorkers && value == "0"
      return Option::MOST_THREADS if name == :MaxThreads && value.to_i > Option::MOST_THREADS

      Option::BY_NAME[name].coerce(value, variable)
    end

    # rackup sets RACK_ENV to development where its user has not set it, also in production of Rhebok's users, who name the server.
    def development_in?(environment)
      return true if @given[:development]

      names = %w[RACK_ENV RAILS_ENV APP_ENV]
      return false unless environment.values_at(*names).compact.uniq == [AppEnvironment::DEFAULT]

      @given.key?(:user_supplied_options) || @given.key?(:picked) || AppEnvironment.development_chosen?(*names)
    end

    def default_files(environment)
      stage = @given[:environment] || AppEnvironment.name(environment)
      names = @given.key?(:user_supplied_options) ? CONFIG_FILES : CONFIG_FILES.first(1)
      names.map { |name| name.sub("ENVIRONMENT") { Text.utf8(stage) } }.select { |name| File.file?(name) }
    end

    # A ConfigFile outranks options, as in Rhebok. Flags typed to `bin/rails server` outrank the ConfigFile. Values that Rails takes from
    # the environment outrank a puma.rb, too.
    def merge(chosen, written)
      typed = @given.key?(:user_supplied_options) ? chosen.select { |name, _| @puma_file || typed?(name) } : {}
      merged = override(chosen, written)
      merged = merged.except(:Path) if typed.key?(:Host) || typed.key?(:Port)
      override(merged, typed)
    end

    def override(weaker, stronger)
      weaker = weaker.except(:Listen) if (stronger.keys & LISTEN_REPLACES).any?
      weaker.merge(stronger)
    end

    # Rails also counts PORT, HOST and BINDING as supplied by the user.
    def typed?(name)
      TYPED.key?(name) && StartCommand.current.command.any? { |word| TYPED[name].match?(word.b) }
    end

    # @return [ConfigFile, nil]
    def read_file(path, environment)
      @sources = {}
      return unless path

      text = "loading from config_file:#{path}"
      @output ? @output.puts(text) : Log.say(text)
      @file = Text.expand(path, StartCommand.logical_directory)
      config = evaluate(path, environment)
      config.__warnings__.each { |line| warn_of(line) }
      @puma = config.__puma__
      @sources = config.__sources__.freeze
      config
    end

    def evaluate(path, environment)
      command = @given[:command]
      # As under Puma, `port` listens at the host that rackup or Rails passes, and the environment is theirs.
      host = command ? nil : (@chosen[:Host] || @assumed[:Host])
      context = { environment: environment, fixed: !@given[:environment].nil?, **(host ? { host: host } : {}) }
      @puma_file = command&.fetch(:puma) || PUMA_FILE.match?(path.b)
      (@puma_file ? PumaFile : ConfigFile).evaluate(path, **context)
    end

    def warn_of_unknown
      (@given.keys - Option::BY_NAME.keys - Option::BY_WORD.keys - FOREIGN_KEYS).each do |key|
        warn_of("unknown option #{key}#{Error.suggestion(key, Option::BY_NAME.keys)}")
      end
    end

    def warn_of(text) = @warnings ? @warnings.puts("fastrack: #{text}") : Log.line(text, :warn)

    def draw(min, max) = min && min < max ? rand(min..max) : max
  end
end
