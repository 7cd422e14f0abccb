# frozen_string_literal: true

module Fastrack
  # Strings from outside: arguments, variables, paths, messages of exceptions. They are bytes, which Ruby takes for text in the locale's
  # encoding, which without LANG is US-ASCII. As UTF-8, valid or not, they can be joined with each other and with this source's strings.
  # Regular expressions, `split` and `strip` raise where such a string is not valid: String#b goes before them.
  module Text
    module_function

    # @return [String] the same bytes
    def utf8(string) = string.encoding == Encoding::UTF_8 ? string : string.dup.force_encoding(Encoding::UTF_8)

    # As File.expand_path, which joins a path and a working directory only if one of them is ASCII, or both have one encoding.
    #
    # @param directory [String, nil] nil: the working directory, which may be gone where the path is absolute
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
