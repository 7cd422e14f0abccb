# frozen_string_literal: true

require_relative "../process/user_group"
require_relative "../error"

module Fastrack
  # The types of option values. Each turns what a user may write (a command line gives strings, a bare `-O Key` gives
  # true) into the value that the server works with, and raises ArgumentError with what was expected instead.
  module OptionType
    TRUE_WORDS = /\A(?:true|yes|1|on)\z/i.freeze
    FALSE_WORDS = /\A(?:false|no|0|off|)\z/i.freeze

    module_function

    # @return [Boolean]
    def boolean(value)
      case value.is_a?(Integer) ? value.to_s : value
      when true, TRUE_WORDS then true
      when false, FALSE_WORDS then false
      else raise ArgumentError, "true or false"
      end
    end

    # @param range [Range] of Integers
    # @return [Integer]
    def integer(value, range)
      number = value.is_a?(String) ? Integer(value, 10, exception: false) : value
      return number if number.is_a?(Integer) && range.cover?(number)

      raise ArgumentError, range.end ? "a whole number from #{range.begin} to #{range.end}" : at_least(range.begin)
    end

    # @param zero [Boolean] whether 0 is a time too
    # @return [Float] seconds
    def seconds(value, zero:)
      number = value.is_a?(String) ? Float(value, exception: false) : value
      seconds = number.to_f if number.is_a?(Numeric) && number.real?
      return seconds if seconds&.finite? && (seconds.positive? || (zero && seconds.zero?))

      raise ArgumentError, zero ? "seconds, 0 or more" : "seconds, more than 0"
    end

    # @return [String] frozen
    def text(value)
      string = value.respond_to?(:to_path) ? value.to_path : value
      return string.dup.freeze if string.is_a?(String) && !string.empty? && !string.include?("\0")

      raise ArgumentError, "some text"
    end

    # @return [Object] the value itself, one of `choices`
    def choice(value, choices)
      return value.to_s if choices.include?(value.to_s)

      raise ArgumentError, choices.join(" or ")
    end

    # @return [#call]
    def callable(value)
      return value if value.respond_to?(:call)

      raise ArgumentError, "a block or anything that can be called"
    end

    # @param value [Integer, String] a String is octal, as chmod(1) and umask(1) take it
    # @return [Integer] bits of a file's mode
    def mode(value)
      bits = value.is_a?(String) && /\A0?o?[0-7]{1,4}\z/.match?(value) ? value.oct : value
      return bits if bits.is_a?(Integer) && bits.between?(0, 0o777)

      raise ArgumentError, "a file's mode, from 0000 to 0777"
    end

    # @param value [String, Array<String>] "user", "user:group" or ["user", "group"]
    # @return [Account]
    def account(value)
      names = value.is_a?(String) ? value.split(":", 2) : value
      return Account.find(*names) if names.is_a?(Array) && names.size.between?(1, 2) && names.all?(String)

      raise ArgumentError, "a user, and a group if it is not the user's own"
    end

    # @param value [Array<Address>, String] a String may have several, with commas in between
    # @return [Array<Address>] frozen
    def addresses(value)
      list = value.is_a?(String) ? value.split(",") : Array(value)
      raise ArgumentError, Address::FORMS if list.empty?

      list.map { |one| one.is_a?(Address) ? one : Address.parse(one) }.freeze
    end

    # @return [Object] the value itself
    def logger(value)
      return value if %i[debug info warn error fatal].all? { |level| value.respond_to?(level) }

      raise ArgumentError, "a Logger"
    end

    def at_least(number)
      "a whole number, #{number} or more"
    end
    private_class_method :at_least
  end
end
