# frozen_string_literal: true

require "fcntl"
require_relative "log"

module Fastrack
  # The files that this process logs to, opened anew once somebody (logrotate) has moved them: stdout and stderr, and every
  # file that was opened to append to it, by an absolute path and with `sync`. Those are logs, and nothing else is.
  module LogFiles
    # Ruby knows no path of theirs where a shell has opened them.
    STANDARD = [STDOUT, STDERR].freeze
    private_constant :STANDARD

    @paths = {}

    class << self
      # Notes which files stdout and stderr are, while they still have the names that they were opened by.
      #
      # @param descriptors [String] where proc(5) shows this process's
      def remember(descriptors = "/proc/self/fd")
        @paths = STANDARD.to_h { |stream| [stream, path_of(stream, descriptors)] }.compact
      end

      # Opens anew those whose path leads to another file, or to none.
      def reopen
        (@paths.to_a + opened).each do |stream, path|
          renew(stream, path) unless File.identical?(path, stream)
        rescue SystemCallError, IOError => e
          # It goes on with the one that it has.
          Log.line("cannot reopen #{path}: #{e.message}")
        end
      end

      private

      def path_of(stream, descriptors)
        return unless stream.stat.file?

        path = File.readlink(File.join(descriptors, stream.fileno.to_s))
        path if File.identical?(path, stream)
      rescue SystemCallError, IOError
        nil
      end

      def opened
        ObjectSpace.each_object(File).filter_map do |file|
          [file, file.path] if log?(file)
        rescue SystemCallError, IOError
          nil
        end
      end

      def log?(file)
        # O_APPEND is what tells a log from any other file.
        !file.closed? && file.sync && file.path&.start_with?("/") && file.stat.file? &&
          (file.fcntl(Fcntl::F_GETFL) & (File::WRONLY | File::APPEND)) == (File::WRONLY | File::APPEND)
      end

      def renew(stream, path)
        owner = stream.stat
        # What cannot be opened leaves the stream as it is.
        File.open(path, mode(stream)) { |file| stream.reopen(file) }
        stream.sync = true
        # Workers run as another user than the master, maybe, and open the same file.
        stream.chown(owner.uid, owner.gid) unless [stream.stat.uid, stream.stat.gid] == [owner.uid, owner.gid]
      end

      def mode(stream)
        ["a", stream.external_encoding, stream.external_encoding && stream.internal_encoding].compact.join(":")
      end
    end
  end
end
