# frozen_string_literal: true

require_relative "../error"
require_relative "../log"
require_relative "../process/guards"
require_relative "../process/line_reader"
require_relative "../worker/control_channel"
require_relative "program"

module Fastrack
  module Proxy
    # One process of the proxy, as the master sees it. The master writes settings to the process's standard input, one set a line. The
    # process writes lines to its standard output: that it is ready, its counters, and lines for the log. Each of the two ends at the
    # other's end of file.
    class Child
      # Seconds for the start.
      START_TIME = 20

      # Exit status when the program could not be run, as in a shell.
      NOT_FOUND = 127

      # Signals that the process does not get.
      SIGNALS = %w[TERM INT QUIT HUP USR1 USR2].freeze

      # Two limits for glibc's malloc, in bytes (mallopt(3)): of free memory that stays, and of the size from which a block is a mapping of
      # its own. With glibc's own 128 KiB, the system gives and takes the memory of each compressed page, and of each piece of a large file.
      # That costs half of a page's CPU, and a third of a large file's (bench/proxy).
      ALLOCATOR = { "MALLOC_TRIM_THRESHOLD_" => "4194304", "MALLOC_MMAP_THRESHOLD_" => "4194304" }.freeze

      # Levels of lines for the log.
      LEVELS = %w[info warn error].freeze

      # @return [Integer]
      attr_reader :pid
      # @return [Settings] of the start
      attr_reader :settings
      # @return [IO] readable when the process has said something
      attr_reader :output
      # @return [String, nil] its counters, in JSON
      attr_reader :stats
      # @return [Process::Status, nil] once the process has ended
      attr_reader :status

      # @param settings [Settings]
      # @param user [UserGroup, nil] the user that the process runs as
      # @raise [Error] when it does not become ready
      def initialize(settings, user)
        @settings = settings
        @user = user
        line = settings.to_line
        @pid = launch(Program.path)
        tell(line)
        await_ready
      end

      # @return [Array<IO>] descriptors that forked processes must not keep
      def descriptors = [@input, @output].reject(&:closed?)

      # Passes new settings on.
      #
      # @param line [String] see Settings#to_line
      def tell(line)
        @input.write(line)
      rescue SystemCallError
        # The process has ended.
        nil
      end

      # Has the process finish its requests, and end.
      def stop = tell("stop\n")

      # Has the process open its log file anew.
      def reopen_logs = tell("reopen\n")

      # Reads what the process has said, without waiting.
      def read
        @lines.read.to_a.grep(String) { |line| hear(line) }
      rescue SystemCallError
        nil
      end

      # @return [Boolean] whether the process has ended
      def ended?
        _, @status = Process.wait2(@pid, Process::WNOHANG) unless @status || @lost
        !@status.nil? || @lost
      rescue Errno::ECHILD
        # A part of the app has waited for the process.
        @lost = true
      end

      def signal(name)
        Process.kill(name, @pid) unless ended?
      rescue SystemCallError
        nil
      end

      # Called when the process has ended, or in a process that is not its parent.
      def close = descriptors.each(&:close)

      # @return [String] how it ended, for the log
      def ending
        return "has ended" unless @status

        @status.signaled? ? "was killed by SIG#{Signal.signame(@status.termsig)}" : "exited with status #{@status.exitstatus}"
      end

      private

      def launch(program)
        theirs_in, @input = IO.pipe
        @output, theirs_out = IO.pipe
        @lines = LineReader.new(@output)
        @input.sync = true
        ForkGuard.own_fork { ControlChannel.fork_child { run(program, theirs_in, theirs_out) } }
      ensure
        [theirs_in, theirs_out].each { |io| io&.close }
      end

      def run(program, input, output)
        # A terminal or a supervisor sends these signals to all processes. The master decides what they mean.
        SIGNALS.each { |name| trap(name, "IGNORE") }
        @user&.switch
        passed = [*@settings.listeners, @settings.log].compact.each_with_index.to_h { |one, index| [Settings::FIRST_DESCRIPTOR + index, one.fileno] }
        variables = { "LISTEN_FDS" => @settings.listeners.size.to_s, "LISTEN_PID" => nil, "LISTEN_FDNAMES" => nil, **ALLOCATOR, **ENV.slice(*ALLOCATOR.keys) }
        Process.exec(variables, [program, "fastrack proxy"], { in: input, out: output, **passed, close_others: true })
      rescue SystemCallError => e
        output.write("error #{program}: #{e.message}\n")
      ensure
        exit!(NOT_FOUND)
      end

      def await_ready
        deadline = now + START_TIME
        until @ready
          fail_start("it is not ready within #{START_TIME} s") if now > deadline
          output.wait_readable(0.05)
          read
          fail_start(@error || "it #{ending}") if ended? && !@ready
        end
      end

      def fail_start(reason)
        signal(:KILL)
        read
        close
        raise Error, "the proxy does not start: #{@error || reason}"
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      def hear(line)
        word, text = line.split(" ", 2)
        case word
        when "ready" then @ready = true
        when "stats" then @stats = text
        when "error" then @ready ? Log.line("proxy: #{text}", :error) : @error = text
        when *LEVELS then Log.line("proxy: #{text}", word.to_sym)
        end
      end
    end
  end
end
