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

      # Most bytes of a file.
      MOST = 1 << 20

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
        found = (@readings[name] ||= [])
        add(found, read(pairs)) unless found.last&.pairs == pairs && found.last.stamps
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
        files = pairs.flatten.map { |path| open(path) }
        opened = files.grep(File)
        stamps = files.map { |file| state(file.stat) if file.is_a?(File) }
        descriptor, sizes = Fastrack.sealed_copy(opened.map(&:fileno), MOST)
        parts = pairs.flatten.zip(files).map { |path, file| part(path, file.is_a?(File) ? sizes.shift : file) }
        Reading.new(@numbers += 1, pairs, stamps, IO.for_fd(descriptor), parts)
      ensure
        opened&.each(&:close)
      end

      # @return [File, String] the text is an error
      def open(path)
        SafeFile.reading(path, @user) do |found|
          # Without NONBLOCK, opening a FIFO waits for a writer.
          File.open(found, File::RDONLY | File::NONBLOCK | File::NOCTTY).tap { |file| file.stat.file? or raise file.close || SafeFile::Refused, "it is no file" }
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
        SafeFile.reading(path, @user) { |found| state(File.stat(found)) }
      rescue SystemCallError
        nil
      end

      def state(stat) = ([stat.dev, stat.ino, stat.size, stat.mtime, stat.ctime] if stat.file?)
    end
  end
end
