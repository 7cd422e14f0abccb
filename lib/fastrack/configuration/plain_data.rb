# frozen_string_literal: true

require_relative "../error"
require_relative "../text"

module Fastrack
  # Plain data as bytes: nil, true, false, numbers, texts, and Arrays and Hashes of these. The bytes may come from a process of another user,
  # so they make no other objects. JSON and strscan are gems, whose versions the app's bundle chooses after this file is loaded.
  module PlainData
    # Levels of Arrays and Hashes.
    DEPTH = 8

    # What follows the letter of a number or a length.
    NUMBER = /\G(-?[0-9.e+-]{1,30});/n.freeze
    private_constant :NUMBER

    module_function

    # @return [String] binary
    # @raise [Error] for any other object
    def dump(value)
      case value
      when nil then "n".b
      when true then "t".b
      when false then "f".b
      when Integer then "i#{value};".b
      when Float then "d#{format("%.17g", value)};".b
      when String, Symbol then value.to_s.b.then { |text| "s#{text.bytesize};".b << text }
      when Array then value.inject("a#{value.size};".b) { |text, one| text << dump(one) }
      when Hash then value.inject("h#{value.size};".b) { |text, pair| text << dump(pair.first) << dump(pair.last) }
      else raise Error, "#{value.class} is no plain data"
      end
    end

    # @param bytes [String]
    # @return the value; texts are UTF-8, valid or not, and frozen
    # @raise [Error] when the bytes are none of #dump's
    def load(bytes)
      bytes = bytes.b
      value, rest = take(bytes, 0, DEPTH)
      rest == bytes.bytesize ? value : broken
    end

    def broken = raise(Error, "the data is broken")

    # @return [Array(Object, Integer)] the value that begins at that byte, and where the next one begins
    def take(bytes, from, depth)
      kind = bytes[from]
      return [{ "n" => nil, "t" => true, "f" => false }.fetch(kind), from + 1] if kind&.match?(/[ntf]/)

      text = bytes.match(NUMBER, from + 1)&.[](1) or broken
      from += text.bytesize + 2
      return [number(kind, text), from] if kind.match?(/[id]/)

      size = number("i", text)
      broken if size.negative? || size > bytes.bytesize - from || depth.zero?
      case kind
      when "s" then [Text.utf8(bytes[from, size]).freeze, from + size]
      when "a", "h" then list(bytes, from, size * (kind == "h" ? 2 : 1), depth).then { |all, rest| [kind == "h" ? all.each_slice(2).to_h : all, rest] }
      else broken
      end
    end

    def list(bytes, from, size, depth)
      all = Array.new(size) { take(bytes, from, depth - 1).then { |value, rest| (from = rest) && value } }
      [all, from]
    end

    def number(kind, text) = (kind == "i" ? Integer(text, 10, exception: false) : Float(text, exception: false)) || broken
    private_class_method :broken, :take, :list, :number
  end
end
