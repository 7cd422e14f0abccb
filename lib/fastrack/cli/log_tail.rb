# frozen_string_literal: true

module Fastrack
  # What a server has written to its log since this was made, where stdout and stderr are files.
  class LogTail
    # Bytes that are read at most.
    LONGEST = 65_536

    # @param pid [Integer] the master's
    def initialize(pid)
      files = [2, 1].filter_map { |number| open("/proc/#{pid}/fd/#{number}") }
      @files = files.uniq { |file| [file.stat.dev, file.stat.ino] }
      @texts = Array.new(@files.size) { +"" }
    end

    # Whether there is such a file.
    def any? = @files.any?

    # @return [Array<String>] without what a terminal would take for orders
    def lines
      @files.zip(@texts) { |file, text| text << file.read(LONGEST - text.bytesize).to_s if text.bytesize < LONGEST }
      @texts.join.scrub("?").lines.map { |line| line.chomp.gsub(/[^[:print:]\t]/, "?") }
    rescue SystemCallError
      []
    end

    private

    # A pipe that somebody else reads must not be read here.
    def open(path)
      return unless File.stat(path).file?

      file = File.new(path, File::RDONLY | File::NONBLOCK | File::NOCTTY, encoding: "UTF-8")
      file.seek(0, IO::SEEK_END)
      file
    rescue SystemCallError
      # It is another user's, or there is no /proc.
      nil
    end
  end
end
