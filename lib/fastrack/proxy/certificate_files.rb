# frozen_string_literal: true

require_relative "../native"
require_relative "../process/safe_file"

module Fastrack
  module Proxy
    # Files of certificates and their keys. The master reads them for the proxy, whose user need not be able to: a key may be root's alone. The
    # proxy gets a copy in memory, which nobody can change. No byte of a key is in the master's own memory, which generation 0 and the workers
    # inherit.
    #
    # What the proxy could use is kept until it uses something else, so that a proxy that is started anew has it, too.
    class CertificateFiles
      # Seconds between two looks whether files have changed.
      PAUSE = 1

      # Most bytes of a file, most of all files that are kept, and most files of a listener: code of the app's user may name any number of files.
      MOST = 256 << 10
      MOST_OF_ALL = 16 << 20
      MOST_FILES = 1000

      # @attr number [Integer] the first one has 1
      # @attr pairs [Array<Array(String, String)>] absolute paths
      # @attr stamps [Array] the files' states
      # @attr copy [IO]
      # @attr parts [Array<Hash>] path, size in the copy, and error of each file
      # @attr proven [Boolean] whether the proxy could use them
      Reading = Struct.new(:number, :pairs, :stamps, :copy, :parts, :proven)
      private_constant :Reading

      # @param user [UserGroup, nil] the proxy's
      def initialize(user)
        @user = user
        @numbers = 0
        @readings = {}
      end

      # Reads the files of a listener's certificates, unless they are read already.
      #
      # @param name [String] of the listener
      # @param pairs [Array<Array(String, String)>] absolute paths of certificates and keys
      # @return [Array(Reading, Reading)] these, and the last ones that the proxy could use: nil, if these are the same
      # @raise [SystemCallError] if the system lacks memory or descriptors
      def of(name, pairs)
        found = @readings.fetch(name, [])
        unless found.last&.pairs == pairs && found.last.stamps
          add(found, read(pairs))
          @readings[name] = found
        end
        kept = found.reverse.find(&:proven)
        [found.last, (kept unless kept.equal?(found.last))]
      end

      # Has all files read again, whether or not they have changed.
      def expire = @readings.each_value { |found| found.last.stamps = nil }

      # @return [Boolean] whether a file has changed; then #of reads it again
      def changed?
        changed = @readings.each_value.map(&:last).reject { |one| one.stamps == one.pairs.flatten.map { |path| stamp(path) } }
        changed.each { |one| one.stamps = nil }.any?
      end

      # Called when the proxy uses the certificates of a reading.
      #
      # @param number [Integer] as the proxy says
      def loaded(number)
        @readings.each_value do |found|
          used = found.index { |one| one.number == number } or next
          found[used].proven = true
          close(found.shift(used))
        end
      end

      # @param names [Array<String>] of the listeners that still are there
      def keep(names) = (@readings.keys - names).each { |name| close(@readings.delete(name)) }

      # @return [Boolean] whether there are none
      def empty? = @readings.empty?

      # @return [Array<IO>]
      def descriptors = @readings.values.flatten.map(&:copy)

      private

      # The last one that the proxy could use, and the two latest are kept: the proxy may be about to say that it uses the one before the latest.
      def add(found, reading)
        found << reading
        kept = found.reverse.find(&:proven)
        close(found[0...-2].reject { |one| one.equal?(kept) }.each { |one| found.delete(one) })
      end

      def close(readings) = readings.each { |one| one.copy.close }

      def read(pairs)
        # A change from now on is one for the next look.
        stamps = pairs.flatten.map { |path| stamp(path) }
        left = MOST_OF_ALL - @readings.values.flatten.flat_map(&:parts).sum { |part| part[:size].to_i }
        files = []
        pairs.flatten.each_with_index { |path, index| files << (index < MOST_FILES ? open(path, left) { |size| left -= size } : "it is one of more than #{MOST_FILES}") }
        opened = files.grep(File)
        descriptor, sizes = Fastrack.sealed_copy(opened.map(&:fileno), MOST)
        parts = pairs.flatten.zip(files).map { |path, file| part(path, file.is_a?(File) ? sizes.shift : file) }
        Reading.new(@numbers += 1, pairs, stamps, IO.for_fd(descriptor), parts)
      ensure
        files&.grep(File)&.each(&:close)
      end

      # @param left [Integer] bytes that all files may have
      # @yieldparam size [Integer] of the file
      # @return [File, String] the text is an error
      def open(path, left)
        SafeFile.reading(path, @user) do |found|
          # Without NONBLOCK, opening a FIFO waits for a writer.
          file = File.open(found, File::RDONLY | File::NONBLOCK | File::NOCTTY)
          size = file.stat.size
          reason = "it is no file" unless file.stat.file?
          reason ||= "all certificates and keys have more than #{MOST_OF_ALL >> 20} MiB" if size > left
          raise file.close || SafeFile::Refused, reason if reason

          yield [size, MOST].min
          file
        end
      rescue Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM
        raise
      rescue SystemCallError => e
        SafeFile.reason(e)
      end

      def part(path, size)
        return { path: path, error: size } if size.is_a?(String)

        { path: path, size: size, error: ("it is longer than #{MOST} bytes" if size > MOST) }.compact
      end

      def stamp(path)
        SafeFile.reading(path, @user) { |found| File.stat(found).then { |stat| [stat.dev, stat.ino, stat.size, stat.mtime, stat.ctime] } }
      rescue SystemCallError
        nil
      end
    end
  end
end
