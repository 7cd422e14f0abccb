# frozen_string_literal: true

# The examples of the parser's rules: requests, and what is to become of each. The file says how it is written.
module HttpRules
  FILE = File.expand_path("../../crates/http/tests/rules.txt", __dir__)

  # status is 200 for a request that is taken; seen is what the application is to see of it, by name.
  Example = Struct.new(:rule, :status, :bytes, :seen)

  QUOTED = /"((?:[^"\\]|\\.)*)"/.freeze
  ESCAPES = { "r" => "\r", "n" => "\n", "t" => "\t", "0" => "\0" }.freeze

  module_function

  def examples
    File.readlines(FILE, chomp: true, encoding: "UTF-8").grep_v(/\A(?:#|\z)/).map do |line|
      rule, status, rest = line.split(" ", 3)
      seen = rest.sub(QUOTED, "").scan(/(\w+)=#{QUOTED}/).to_h { |key, text| [key, bytes(text)] }
      Example.new(rule, Integer(status), bytes(rest[QUOTED, 1]), seen)
    end
  end

  # The bytes that a quoted text stands for.
  def bytes(text)
    text.gsub(/\{([^{}]+)\*(\d+)\}/) { Regexp.last_match(1) * Integer(Regexp.last_match(2)) }.b.gsub(/\\(?:x(\h\h)|(.))/n) do
      hex, other = Regexp.last_match.captures
      hex ? hex.hex.chr : ESCAPES.fetch(other, other)
    end
  end
end
