# frozen_string_literal: true

require "fcntl"
require "socket"
require_relative "backtrace"
require_relative "error"
require_relative "process/safe_file"

module Fastrack
  # The server's log on stderr, and on stdout the lines that Rhebok's users look for. A log that cannot be written (closed
  # pipe, full disk, a reader that hangs) is no reason to stop serving.
  module Log
    # A stream whose errors are ignored, and that nobody waits for.
    class Output
      # Seconds that the reader of a full pipe, socket or terminal gets to make room. Then lines are dropped until there is.
      PATIENCE = 0.1

      # @yieldreturn [IO, #write] asked each time: the app may replace $stdout, and `write` is all that Ruby asks for
      def initialize(&stream)
        @stream = stream
      end

      def puts(text)
        stream = @stream.call
        return Log.put(stream, text) unless may_block?(stream)

        # Writes first what the app has buffered. After the start nothing is buffered.
        flush unless stream.sync
        offer(stream, text.end_with?("\n") ? text : "#{text}\n")
      rescue *Error::FOREIGN
        nil
      end

      def flush
        stream = @stream.call
        stuck = may_block?(stream) && !stream.sync && !stream.wait_writable(PATIENCE)
        return discard if stuck

        stream.flush if stream.respond_to?(:flush)
      rescue *Error::FOREIGN
        discard
      end

      private

      def may_block?(stream) = stream.is_a?(IO) && !stream.stat.file?

      # Writes without blocking, and leaves the descriptor as it is: other processes also write there, and some count on blocking.
      def offer(stream, text)
        if stream.stat.socket?
          socket = Socket.for_fd(stream.fileno).tap { |one| one.autoclose = false }
          return send_all(socket, text) { |rest| socket.sendmsg_nonblock(rest, exception: false) }
        end
        again = File::WRONLY | File::NONBLOCK | File::NOCTTY
        File.open("/proc/self/fd/#{stream.fileno}", again) do |file|
          send_all(file, text) { |rest| file.write_nonblock(rest, exception: false) }
        end
      rescue Errno::EACCES, Errno::ENOENT, Errno::EMFILE, Errno::ENFILE
        # The stream is another user's, or there is no /proc. A pipe that poll(2) calls writable takes a page (PIPE_BUF).
        send_all(stream, text) { |rest| stream.wait_writable(0) ? stream.write(rest.byteslice(0, 4096)) : :wait_writable }
      end

      # @yieldparam rest [String]
      # @yieldreturn [Integer, Symbol] how many bytes were written; or :wait_writable
      def send_all(io, text)
        rest = text.b
        deadline = now + PATIENCE
        until rest.empty?
          written = yield(rest)
          @full = written == :wait_writable && (@full || !io.wait_writable([deadline - now, 0].max) || now > deadline)
          return if @full

          rest = rest.byteslice(written..) unless written == :wait_writable
        end
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      # Drops bytes that Ruby has buffered and cannot write. A fork would flush them first, and fail.
      def discard
        stream = @stream.call
        descriptor = IO.for_fd(stream.fileno, "w", autoclose: false)
        copy = descriptor.dup
        descriptor.reopen(File::NULL, "w")
        stream.flush
      rescue *Error::FOREIGN
        nil
      ensure
        # The descriptor gets its file back, which may become writable again.
        copy && descriptor.reopen(copy)
        copy&.close
      end
    end

    STDOUT = Output.new { $stdout }
    STDERR = Output.new { $stderr }

    class << self
      # @return [LogFormat, nil] nil: lines are written as they are
      attr_accessor :style
      # @return [Repeats, nil] nil: each line is written
      attr_accessor :repeats
    end

    module_function

    # Writes one line to stderr, or to the configured logger.
    #
    # @param level [Symbol] :info, :warn or :error
    def line(text, level = :info)
      return Log.style.line(text, level) if Log.style

      # In one write, so that lines of several processes do not mix.
      STDERR.puts("fastrack: #{text}\n")
    end

    # @param number [Integer]
    # @param noun [String] whose plural is regular
    # @return [String] "1 worker", "2 workers"
    def count(number, noun, plural = "#{noun}s") = "#{number} #{number == 1 ? noun : plural}"

    # Writes one line to stdout and flushes it.
    def say(text)
      Log.style ? Log.style.say(text) : STDOUT.puts(text)
      STDOUT.flush
    end

    # Flushes stdout and stderr, the app's output included.
    def flush = [STDOUT, STDERR].each(&:flush)

    # Ruby's fork flushes $stdout and $stderr, and fails if the app has replaced them by objects without `flush`.
    #
    # @yieldparam restore [#call] gives a child the app's objects back
    # @return what the block returns
    def while_flushable
      streams = [$stdout, $stderr]
      $stdout = ::STDOUT unless $stdout.respond_to?(:flush)
      $stderr = ::STDERR unless $stderr.respond_to?(:flush)
      restore = -> { $stdout, $stderr = streams }
      yield restore
    ensure
      restore&.call
    end

    # Writes an error of the app to rack.errors. On stderr it is a line of the log.
    def report(stream, text)
      return line(text, :error) if $stderr.equal?(stream)

      put(stream, text)
      stream.flush if stream.respond_to?(:flush)
    end

    # Writes a line to an object that may have no method but `write`.
    def put(stream, text) = stream.respond_to?(:puts) ? stream.puts(text) : stream.write("#{text.chomp}\n")

    # Logs an exception with the app's frames and causes. A repeated exception gets one line, with the place where it was raised.
    def exception(text, error)
      reason = Error.reason(error)
      at = Backtrace.frames(error).first
      # The key has no numbers, because numbers are of workers, processes and objects.
      repeated([text, reason].map { |part| part.b.gsub(/0x\h+|\d+/n, "") } << at, :error) do |count|
        count == 1 ? "#{text}: #{Backtrace.text(error)}" : "#{text}: #{reason}#{", at #{at}" if at}"
      end
    end

    # Writes a line that may come again and again: the first time, and then at growing intervals.
    #
    # @param key [Object] see Repeats#count
    # @yieldparam count [Integer] how often it has come
    # @yieldreturn [String] the line, to which the count is added
    def repeated(key, level = :info)
      count = Log.repeats ? Log.repeats.count(key) : 1
      line("#{yield count}#{" (#{count} times so far)" if count > 1}", level) if count
    end
  end

  # Reopens log files after a rotation (USR1): stdout and stderr, and every file opened for appending, with an absolute path
  # and with `sync`, as Ruby's Logger does it.
  module LogFiles
    # Ruby does not know the paths of streams that a shell has opened.
    STANDARD = [STDOUT, STDERR].freeze
    private_constant :STANDARD

    @paths = {}
    @told = {}

    class << self
      # Notes the paths of stdout and stderr before a rotation renames the files.
      #
      # @param descriptors [String] this process's fd directory in proc(5)
      def remember(descriptors = "/proc/self/fd")
        found = STANDARD.to_h { |stream| [stream, path_of(stream, descriptors)] }.compact
        @paths = @told.select { |stream, path| same?(path, stream) }.merge(found)
      end

      # Notes paths of stdout and stderr that the process which opened the files has told. Without /proc the system does not tell them.
      #
      # @param paths [Hash{IO => String}]
      def learn(paths) = @told = paths

      # @param stream [IO]
      # @return [String, nil] the path that #reopen opens for a log
      def path(stream) = @paths.fetch(stream) { stream.path if stream.is_a?(File) && log?(stream) }

      # Reopens logs whose path is another file by now, or none.
      def reopen
        (@paths.to_a + opened).each do |stream, path|
          renew(stream, path) unless File.identical?(path, stream)
        rescue *Error::FOREIGN => e
          # The stream keeps its file.
          Log.line("cannot reopen #{path}: #{e.is_a?(SystemCallError) ? SafeFile.reason(e) : Error.reason(e)}", :error)
        end
      end

      private

      def same?(path, stream)
        stream.stat.file? && File.identical?(path, stream)
      rescue SystemCallError, IOError
        false
      end

      def path_of(stream, descriptors)
        path = File.readlink(File.join(descriptors, stream.fileno.to_s))
        path if same?(path, stream)
      rescue SystemCallError, IOError
        nil
      end

      def opened
        ObjectSpace.each_object(File).filter_map do |file|
          [file, file.path] if log?(file)
        rescue *Error::FOREIGN
          # The object's class may be the app's.
          nil
        end
      end

      # Only logs are opened with O_APPEND.
      def log?(file)
        !file.closed? && file.sync && file.path&.start_with?("/") && file.stat.file? &&
          (file.fcntl(Fcntl::F_GETFL) & (File::WRONLY | File::APPEND)) == (File::WRONLY | File::APPEND)
      end

      def renew(stream, path)
        require_relative "native"
        old = stream.stat
        # If the path cannot be opened, the stream stays as it is. Workers may run as another user, and must be able to open the same file.
        file = SafeFile.append(path, [old.uid, old.gid])
        stream.flush
        # Replaced in one step: other threads may be writing to the stream.
        Fastrack.replace_file(stream.fileno, file.fileno)
        stream.sync = true
      ensure
        file&.close
      end
    end
  end
end
