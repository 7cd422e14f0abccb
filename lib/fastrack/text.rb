# frozen_string_literal: true

module Fastrack
  # Strings from outside: arguments, variables, paths, messages of exceptions. Ruby gives such bytes the locale's encoding, which is
  # US-ASCII without LANG. As UTF-8, valid or not, such strings can be joined with each other and with literals of this source. Regular
  # expressions, `split` and `strip` raise for invalid UTF-8, so String#b comes first.
  module Text
    # Control characters, and characters that change how others are shown, such as U+202E.
    UNPRINTABLE = /[^[:print:]]|\p{Cf}|\p{Co}/

    module_function

    # @return [String] the same bytes
    def utf8(string) = string.encoding == Encoding::UTF_8 ? string : string.dup.force_encoding(Encoding::UTF_8)

    # Text of another process, for the log and for a terminal: what is no printable text appears escaped, as in `\e[2K`, `\n` or `\xFF`.
    #
    # @return [String] valid UTF-8, in one line
    def printable(string)
      text = utf8(string).scrub { |bytes| bytes.unpack("C*").map { |byte| format("\\x%02X", byte) }.join }
      text.match?(UNPRINTABLE) ? text.gsub(UNPRINTABLE) { |character| character.dump[1..-2] } : text
    end

    # File.expand_path for paths of any encoding. Ruby's own method joins a path and a working directory only if one of the two is ASCII, or
    # both have the same encoding.
    #
    # @param directory [String, nil] nil: the working directory, which need not exist if the path is absolute
    # @return [String]
    # @raise [ArgumentError] as File.expand_path
    def expand(path, directory = nil)
      path = utf8(File.path(path))
      path = "#{utf8(Dir.home)}#{path[1..]}" if path == "~" || path.start_with?("~/")
      expanded(path, directory, "/", "~") { |*arguments| File.expand_path(*arguments) }
    end

    # As File.absolute_path.
    def absolute(path) = expanded(path, nil, "/") { |*arguments| File.absolute_path(*arguments) }

    def expanded(path, directory, *beginnings)
      path = utf8(File.path(path))
      yield path, path.start_with?(*beginnings) ? "/" : utf8(directory || Dir.pwd)
    end
    private_class_method :expanded
  end
end
