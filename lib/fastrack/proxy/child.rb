# frozen_string_literal: true

require "json"
require "socket"
require_relative "../error"
require_relative "../log"
require_relative "../process/guards"
require_relative "../process/held_child"
require_relative "../process/line_reader"
require_relative "../worker/control_channel"
require_relative "../worker/message"
require_relative "ending"
require_relative "outbox"
require_relative "program"

module Fastrack
  module Proxy
    # One process of the proxy, as the master sees it. The master writes orders to the process's standard input, one a line. The process
    # writes lines to its standard output: that it is ready, its counters, answers to orders, and lines for the log. Each of the two ends
    # at the other's end of file. The master waits for neither.
    class Child
      # Exit status when the program could not be run, as in a shell.
      NOT_FOUND = 127

      # Signals that the process does not get.
      SIGNALS = %w[TERM INT QUIT HUP USR1 USR2].freeze

      # Two limits for glibc's malloc, in bytes (mallopt(3)): of free memory that stays, and of the size from which a block is a mapping of
      # its own. With glibc's own 128 KiB, the system gives and takes the memory of each compressed page, and of each piece of a large file.
      # That costs half of a page's CPU, and a third of a large file's (bench/proxy).
      ALLOCATOR = { "MALLOC_TRIM_THRESHOLD_" => "4194304", "MALLOC_MMAP_THRESHOLD_" => "4194304" }.freeze

      # Variables of the master's that the process gets, besides those of glibc's malloc. The app's secrets are none of them.
      ENVIRONMENT = %w[LANG LC_ALL TZ RUST_BACKTRACE SSL_CERT_FILE SSL_CERT_DIR LD_LIBRARY_PATH LD_PRELOAD LLVM_PROFILE_FILE].freeze

      # Most characters of what is no message, for the log.
      LONGEST_QUOTE = 100

      # @return [Settings] the last ones that the process was given
      attr_reader :settings
      # @return [IO] readable when the process has said something
      attr_reader :output
      # @return [String, nil] its counters, in JSON
      attr_reader :stats
      # @return [Float] monotonic seconds
      attr_reader :spawned_at
      # @return [String, nil] why the process has not taken its last settings
      attr_reader :refusal
      # @return [Float, nil] monotonic seconds since when an answer to #ask is due
      attr_reader :asked_at
      # @return [String, nil] why it has not become ready
      attr_reader :error
      # @return [Float, nil] monotonic seconds at which a process that was told to end is killed
      attr_reader :kill_at

      # @param settings [Settings]
      # @param user [UserGroup, nil] the user that the process runs as
      # @param now [Float] monotonic seconds
      # @param strict [Boolean] see Settings#message
      # @raise [Error, SystemCallError] when there is no process
      def initialize(settings, user, now, strict:)
        @spawned_at = @heard_at = now
        @orders = 0
        program = Program.path
        message = settings.message(strict: strict)
        @process = HeldChild.forked(launch(program, user))
        @settings = settings
        @outbox.add(*message)
      end

      # @return [Integer]
      def pid = @process.pid

      # @return [Array<IO>] descriptors that forked processes must not keep
      def descriptors = [*@outbox.descriptors, *([@output] unless @output.closed?)]

      # Whether the process accepts clients.
      def ready? = @ready

      # Whether the process has not yet answered new settings.
      def asked? = @taken.to_i < @orders

      # Passes new settings on.
      #
      # @param settings [Settings]
      # @raise [Error] see Settings#message
      def apply(settings)
        message = settings.message(@orders + 1)
        @orders += 1
        @outbox.add(*message)
        @refusal = nil
        @settings = settings
      end

      # Has the process accept no others, finish its requests, and end. A later order counts instead of an earlier one.
      #
      # @param ending [Ending]
      # @param now [Float] monotonic seconds
      def stop(ending, now)
        @kill_at = now + ending.kill_after
        @outbox.add(ending.to_line)
      end

      # Whether only streams and sockets are left.
      def lingers? = !@lingering.nil?

      # @return [Hash] for the status
      def lingering_row = { pid: pid, **(JSON.parse(@stats || "{}", symbolize_names: true).slice(:streams, :tunnels)) }

      # Asks the process for a sign of life, if it has given none for a while.
      #
      # @param now [Float] monotonic seconds
      # @param pause [Float] seconds between an answer and the next question
      # @return [Float] monotonic seconds when to ask again, or since when the answer is due
      def ask(now, pause)
        return @asked_at if @asked_at
        return @heard_at + pause if now < @heard_at + pause

        @outbox.add("ping\n")
        @asked_at = now
      end

      # Sends what the process has not taken yet.
      #
      # @return [Boolean] whether some of it is left
      def flush = @outbox.flush

      # Reads what the process has said, without waiting.
      #
      # @param now [Float] monotonic seconds
      def read(now)
        lines = @lines.read or return @output.close
        lines.each { |line| hear(line, now) unless killed? }
      rescue SystemCallError
        nil
      end

      # @return [Boolean] whether the process has ended
      def ended? = @process.ended?

      # @return [Boolean] whether #kill was called
      def killed? = @killed || false

      # @param reason [String, nil] for the log, when the process has ended
      def kill(reason = nil)
        @killed = true
        @error ||= reason
        @process.signal(:KILL)
      end

      # Called when the process has ended, or in a process that is not its parent.
      def close = [@outbox, @output].each(&:close)

      # @return [String] how it ended, for the log
      def ending
        status = @process.status or return "has ended"

        status.signaled? ? "was killed by SIG#{Signal.signame(status.termsig)}" : "exited with status #{status.exitstatus}"
      end

      private

      def launch(program, user)
        theirs_in, ours = UNIXSocket.pair
        @outbox = Outbox.new(ours)
        @output, theirs_out = IO.pipe
        @lines = LineReader.new(@output)
        ForkGuard.own_fork { ControlChannel.fork_child { run(program, user, theirs_in, theirs_out) } }
      rescue Exception # rubocop:disable Lint/RescueException -- it is raised again
        [ours, @output].each { |io| io&.close }
        raise
      ensure
        [theirs_in, theirs_out].each { |io| io&.close }
      end

      def run(program, user, input, output)
        # A terminal or a supervisor sends these signals to all processes. The master decides what they mean.
        SIGNALS.each { |name| trap(name, "IGNORE") }
        user&.switch
        variables = { **ALLOCATOR, **ENV.slice(*ALLOCATOR.keys, *ENVIRONMENT) }
        Process.exec(variables, [program, "fastrack proxy"], { in: input, out: output, unsetenv_others: true, close_others: true })
      rescue SystemCallError => e
        output.write("error #{program}: #{e.message}\n")
      ensure
        exit!(NOT_FOUND)
      end

      def hear(line, now)
        message = Message.parse(line.to_s.rstrip, :proxy) or return reject(line)
        case message.kind
        when Message::READY then become_ready
        when Message::PONG then @heard_at, @asked_at = now, nil
        when Message::STATS then @stats = message.words.first
        when Message::LINGERING then linger(*message.words)
        when Message::APPLIED then @taken = message.words.first
        when Message::LOADED then @settings.loaded(message.words.first)
        when Message::REFUSED then refuse(*message.words)
        when Message::ERROR then hear_error(message.words.first)
        else Log.line("proxy: #{message.words.first}", message.kind.to_sym)
        end
      end

      # The last error of a process that does not become ready is the reason. Others are those of a listener.
      def hear_error(text)
        log_error if @error
        @error = text
        log_error if @ready
      end

      def become_ready
        @ready = true
        log_error if @error
      end

      def log_error
        Log.line("proxy: #{@error}", :error)
        @error = nil
      end

      # A process that has said what is no message is replaced.
      def reject(line)
        Log.line("the proxy (pid #{pid}) has said what is no message: #{line[0, LONGEST_QUOTE].inspect}", :error)
        kill("it has said what is no message")
      end

      def linger(streams, sockets)
        return if @lingering

        @lingering = true
        Log.line("the proxy (pid #{pid}) lingers for #{Log.count(streams, "stream")} and #{Log.count(sockets, "socket")}")
      end

      def refuse(number, reason)
        @taken = number
        @refusal = reason
      end
    end
  end
end
