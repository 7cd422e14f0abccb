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
  # All settings, from wherever they come: defaults < environment < options < ConfigFile. There is a reader for each
  # option's word.
  class Configuration
    include Option::Readers

    # Environment variables that platforms and Procfiles set. The first that is there counts.
    VARIABLES = {
      MaxWorkers: %w[WEB_CONCURRENCY], Port: %w[PORT], KeepAliveTimeout: %w[PUMA_PERSISTENT_TIMEOUT],
      MaxThreads: %w[PUMA_MAX_THREADS MAX_THREADS RAILS_MAX_THREADS]
    }.freeze

    # Keys that rackup, Rails and Sinatra pass to every handler and that mean nothing to this one.
    FOREIGN_KEYS = %i[
      DoNotReverseLookup Silent Verbose app builder caching command config daemonize debug debugger development early_hints
      environment eval heapfile ignore_options include log_stdout log_to_stdout options picked pid profile_file profile_mode
      quiet require restart_cmd server user_supplied_options using warn
    ].freeze

    # The flags of `bin/rails server` that go before a ConfigFile.
    TYPED = { Port: /\A(?:-p|--port\b)/, Host: /\A(?:-b|--binding\b)/, Pid: /\A(?:-P|--pid\b)/ }
            .then { |flags| { **flags, Listen: flags[:Host] } }.freeze

    # The flags, for messages.
    FLAGS = { Port: "-p", Host: "-b", Pid: "-P" }.freeze

    # A Host that is a whole address, as Puma's users give it to `bin/rails server -b`: a path, a URL, host:port.
    WHOLE_ADDRESS = %r{/|\A~|\A[^:]+:\d+\z|\A\[.*\]:\d+\z|\.sock\z|\Aunix:}.freeze
    ONLY_HOST = %r{\Atcp://(?<host>[^:/]+|\[.*\])/?\z}.freeze

    # What Listen replaces.
    PLACE = %i[Host Port Path].freeze

    # Puma's files, by their names: config/puma.rb, puma_staging.rb, config/puma/production.rb.
    PUMA_FILE = %r{(?:\A|/)(?:config/puma/[^/]+|puma[^/]*)\z}.freeze

    # What counts in development unless it is set: one process, in which a debugger may keep a request for hours.
    DEVELOPMENT = { MaxWorkers: 1, MaxRequestPerChild: 0, RequestTimeout: 0.0, WorkerBootTimeout: 0.0 }.freeze

    # What counts with the `fastrack` command and `bin/rails server`, which no user of Rhebok's has started.
    UNLIKE_RHEBOK = { MaxWorkers: :auto }.freeze

    # Used if no ConfigFile is named: the first that is there. Rhebok's users have Puma's files lying about, and use rackup.
    CONFIG_FILES = %w[config/fastrack.rb config/puma/ENVIRONMENT.rb config/puma.rb].freeze

    # @param given [Hash] the handler's options; keys are Symbols or Strings
    # @param overrides [Hash{Symbol => Object}] what overrides a ConfigFile, by option name, already of the options' types
    # @param environment [Hash, ENV]
    # @param output [#puts, nil] where the loading of a ConfigFile is announced; nil: stdout, as the log is to look
    # @param warnings [#puts, nil] likewise; nil: the log
    # @raise [ConfigurationError]
    def initialize(given = {}, overrides: {}, environment: ENV, output: nil, warnings: nil)
      @given = given.to_h { |key, value| [key.to_sym, value] }
      @overrides = overrides
      @output = output
      @warnings = warnings
      warn_of_unknown
      # All options are checked, whatever the ConfigFile says.
      @assumed, @chosen = known.partition { |option, _, value| assumed?(option.name, value) }.map { |values| coerce(values) }
      read(environment)
    end

    # Reads the same ConfigFile again, whatever the working directory is now.
    #
    # @return [Configuration]
    # @raise [ConfigurationError]
    def reload
      warn_of_unknown
      dup.tap { |copy| copy.read(ENV) }
    end

    # @param name [Symbol] of an option
    # @return [String] where its value was written, for messages: "ConfigFile /srv/app.rb:3: user"
    def source(name) = @places.fetch(name) { "option #{name}" }

    # Calls a hook with as many arguments as it takes: Rhebok's hooks take none, Unicorn's |server, worker|.
    #
    # @param word [Symbol]
    def call_hook(word, *arguments)
      hook = public_send(word) or return
      parameters = (hook.respond_to?(:parameters) ? hook : hook.method(:call)).parameters.map(&:first)
      # Optional ones count: `proc { |server, worker = nil| }` wants both.
      arguments = arguments.first(parameters.count { |kind| %i[req opt].include?(kind) }) unless parameters.include?(:rest)
      hook.call(*arguments)
    end

    # @return [Boolean] whether this is a developer's server
    def development? = @development

    # @return [Boolean] whether this is started as Rhebok was: by rackup, without another server's file
    def rhebok? = @rhebok

    # @return [Boolean] whether max_workers is only how many to begin with
    def auto_workers? = @auto_workers

    # @param app [#call, AppFile]
    # @return [#call] loaded
    def load_app(app) = app.load(default_middleware: default_middleware, path: puma&.rackup)

    # @param app [#call]
    # @return [#call] with what a puma.rb puts around it
    def wrap(app) = puma ? puma.wrap(app) : app

    # @return [Array<String>] for the log: what the user may have expected of this start, and what does not come
    def oversights = [usual_workers, unread_files, idle_queue].compact

    # @return [Array<String>] absolute paths: the server's, and the one that rackup writes
    def pid_files = [pid, @given[:pid]].compact.map { |path| Text.expand(path) }.uniq

    # Called in a forked process, which inherits rackup's at_exit hook. The hook removes the file that this String names. An empty String
    # names none.
    def disown_pid_file
      path = @given[:pid]
      path.replace("") if path.is_a?(String) && !path.frozen?
    end

    # @return [String, nil] for the log, if workers have several threads: RAILS_MAX_THREADS may have been meant for another
    #   server
    def threads_line
      where = " (#{@variables[:MaxThreads]})" if @variables.key?(:MaxThreads)
      "workers answer up to #{max_threads} requests at once#{where}" if max_threads > 1
    end

    # @return [Array] equal for configurations with equal addresses
    def place = @values.values_at(*PLACE, :Listen)

    # Unless a minimum is set, up to a fifth less than the most: workers that were started together are not replaced together.
    #
    # @return [Integer] requests after which a worker is replaced; drawn at random for each worker; 0: never
    def draw_request_limit
      most = max_request_per_child
      # 0 means no limit, and must not be drawn by chance.
      most.zero? ? 0 : draw((min_request_per_child || (most - (most / 5))).clamp(1..), most)
    end

    # @return [Integer] requests between two out-of-band collections; drawn at random for each worker
    def draw_gc_interval = draw(min_gc_per_request, max_gc_per_request)

    # @return [ControlEndpoints, nil] where the monitor is; nil: there is none. Relative paths are those of the directory at the first call:
    #   `working_directory` has been entered by then, and may have been removed later.
    # @raise [ConfigurationError]
    def control
      @control ||= find_control
    end

    # @return [Boolean] whether there is a monitor where no place is named: not for Rhebok's users
    def default_control_socket? = control&.path.nil? && control_path != false && @given.key?(:user_supplied_options)

    # @return [PumaExtras, nil] what Puma's words set besides options
    attr_reader :puma
    # @return [String, nil] the ConfigFile that was read, absolute
    attr_reader :file

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
      @values = defaults(config).merge(@assumed, from_variables, chosen)
      @auto_workers = @values[:MaxWorkers] == :auto
      count_workers if @auto_workers
      @values.freeze
      # For its errors. This may be a copy of another configuration, which knows its own.
      @control = nil
      find_control
    end

    private

    # The file that was read before, or is named, or is there.
    def config_path(environment)
      return @file || @chosen[:ConfigFile] if @file || @chosen[:ConfigFile] || @given.dig(:command, :no_config)

      found, *others = default_files(environment)
      @unread = others if found == CONFIG_FILES.first
      found
    end

    def defaults(config)
      usual = @given.key?(:user_supplied_options) ? UNLIKE_RHEBOK : {}
      Option::DEFAULTS.merge(usual, @development ? DEVELOPMENT : {}, config&.__defaults__.to_h)
    end

    def count_workers
      require_relative "process/cpus"
      cpus = CPUs.new
      @values[:MaxWorkers] = [cpus.count, Option::Types::MOST_WORKERS].min
      warn_of("workers auto: #{max_workers} (#{cpus})")
    end

    def usual_workers
      return if !@rhebok || @development || [@variables, @chosen, @written].any? { |one| one.key?(:MaxWorkers) }

      "#{max_workers} workers, Rhebok's number, because none is set: they share no memory, so no caches or queues in it, and no async " \
        "adapter of Action Cable's; -O max_workers=1 is one process"
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
      # :pid is rackup's --pid. rackup also writes that file, but only we keep it right across USR2.
      { Pid: @given[:pid] }.merge(@given.except(:pid)).filter_map do |key, value|
        option = Option.find(key)
        # rackup's default for WEBrick is AccessLog: [].
        [option, key, value] if option && !value.nil? && [key, value] != [:AccessLog, []]
      end
    end

    # Whether a Host or Port is only the default of rackup or Rails. rackup's is an Integer, its user's choice a String;
    # Rails lists what its user has chosen.
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

    # @return [String, nil] what the user of `bin/rails server` has typed
    def flag(name) = (FLAGS[name] if @given.key?(:user_supplied_options) && typed?(name))

    # @return [Array] the option that it is, and its value
    def host_or_address(value, source)
      text = Option::BY_NAME[:Host].coerce(value, source)
      only = ONLY_HOST.match(text.b)
      return [:Host, Text.utf8(only[:host])] if only
      return [:Host, text] unless WHOLE_ADDRESS.match?(text.b)

      [:Listen, Option::BY_NAME[:Listen].coerce(text, source)]
    end

    # @return [Hash{Symbol => String}] the variable for each option that one counts for.
    #   A variable for which the user has chosen a value is not even checked: the platform may have set it for another
    #   program. An empty variable counts as unset.
    def variables(environment, chosen)
      decided = chosen.key?(:Path) || chosen.key?(:Listen) ? [*chosen.keys, :Port] : chosen.keys
      # rackup's users come from Rhebok: their app need not be thread-safe.
      decided |= [:MaxThreads] unless @puma_file || @given.key?(:user_supplied_options)
      VARIABLES.except(*decided).transform_values { |names| names.find { |name| !environment[name].to_s.empty? } }.compact
    end

    # WEB_CONCURRENCY=0 is Puma's way to ask for a single process: here, one worker.
    def variable_value(name, variable, value)
      return 1 if name == :MaxWorkers && value == "0"
      return Option::MOST_THREADS if name == :MaxThreads && value.to_i > Option::MOST_THREADS

      Option::BY_NAME[name].coerce(value, variable)
    end

    # rackup sets RACK_ENV to development wherever its user has not said anything, in Rhebok's production too, whose server was named.
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

    # A ConfigFile goes before options, as in Rhebok; but not before what is typed to `bin/rails server`, and a puma.rb not before what
    # Rails takes from the environment either.
    def merge(chosen, written)
      typed = @given.key?(:user_supplied_options) ? chosen.select { |name, _| @puma_file || typed?(name) } : {}
      merged = override(chosen, written)
      merged = merged.except(:Path) if typed.key?(:Host) || typed.key?(:Port)
      override(merged, typed)
    end

    def override(weaker, stronger)
      weaker = weaker.except(:Listen) if (stronger.keys & PLACE).any?
      weaker.merge(stronger)
    end

    # Rails also counts PORT, HOST and BINDING as what its user has supplied.
    def typed?(name)
      TYPED.key?(name) && StartCommand.current.command.any? { |word| TYPED[name].match?(word.b) }
    end

    # @return [ConfigFile, nil]
    def read_file(path, environment)
      @places = {}
      return unless path

      text = "loading from config_file:#{path}"
      @output ? @output.puts(text) : Log.say(text)
      @file = Text.expand(path, StartCommand.logical_directory)
      config = evaluate(path, environment)
      config.__useless__.each { |line| warn_of(line) }
      @puma = config.__puma__
      @places = config.__places__.freeze
      config
    end

    def evaluate(path, environment)
      command = @given[:command]
      # As under Puma: rackup and Rails say where `port` listens, and which environment it is.
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
