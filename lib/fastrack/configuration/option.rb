# frozen_string_literal: true

require "etc"
require_relative "../error"
require_relative "../log"
require_relative "../text"

module Fastrack
  # The user and group that workers run as: the user's name, and the numbers of both.
  UserGroup = Struct.new(:name, :uid, :gid) do
    # @param user [String] a name
    # @param group [String, nil] a name; nil: the user's primary group
    # @raise [ArgumentError] with the expected form
    def self.find(user, group = nil)
      missing = "user"
      entry = Etc.getpwnam(user)
      missing = "group"
      new(user.dup.freeze, entry.uid, group ? Etc.getgrnam(group).gid : entry.gid).freeze
    rescue ArgumentError
      raise ArgumentError, "must be an existing #{missing}"
    end

    # Whether this process may switch to the user. Only root may, unless the process is that user already.
    def permitted? = Process.euid.zero? || current?

    # Switches this process to the user for good. Groups come first, while the process still has the right to change them.
    #
    # @raise [SystemCallError]
    def switch
      return if current?

      Process.initgroups(name, gid)
      Process::GID.change_privilege(gid)
      Process::UID.change_privilege(uid)
    end

    private

    def current? = Process.euid == uid && Process.egid == gid
  end

  # A setting: an option (`-O MaxWorkers=3`) and a word in a ConfigFile (`max_workers 3`). options.rb lists all.
  class Option
    # @return [Symbol] :MaxWorkers
    attr_reader :name
    # @return [Symbol] the word in a ConfigFile, and Configuration's reader: :max_workers
    attr_reader :word
    attr_reader :default
    # @return [String] one line for `rackup -s Fastrack --help`, with its default
    def help_with_default = default.nil? ? help : "#{help} (default: #{default})"

    # @return [String] the same line without the default
    attr_reader :help

    # @param type [Symbol, #call] a method of Types, or a callable that converts a value as those methods do
    # @param arguments [Array] further arguments of that method
    def initialize(name, word, default, help, type, *arguments)
      @name = name
      @word = word
      @default = default
      @help = help
      @hook = type == :callable
      @type = type.respond_to?(:call) ? type : Types.method(type)
      @arguments = arguments
    end

    # @param source [String] where the value was written, for the message
    # @raise [ConfigurationError] when the value does not fit the type
    def coerce(value, source = "option #{name}")
      @type.call(value.is_a?(String) ? value.b : value, *@arguments)
    rescue ArgumentError => e
      value = Text.utf8(value) if value.is_a?(String)
      given = value == true ? "no value was given" : "got #{value.inspect[0, 200]}"
      # No log shows a token, not even an invalid one.
      raise ConfigurationError, "#{source} #{e.message}#{"; #{given}" unless @name == :ControlToken}"
    end

    # Whether the value is a block in a ConfigFile.
    def hook? = @hook

    # Option types. Each method converts a user's value, or raises ArgumentError ("must be ..."). A command line gives Strings, and a bare
    # `-O Key` gives true.
    module Types
      TRUE_WORDS = /\A(?:true|yes|1|on)\z/i.freeze
      FALSE_WORDS = /\A(?:false|no|0|off|)\z/i.freeze

      # Largest number where no other limit is set, also for bytes. Sums of such numbers fit into 64 bits.
      LARGEST = 1_000_000_000_000_000

      # Some 30 years.
      MOST_SECONDS = 1_000_000_000

      SECONDS = { nil => 1, "ms" => 0.001, "s" => 1, "m" => 60, "h" => 3600 }.freeze

      BYTES = { "" => 1, "k" => 1 << 10, "m" => 1 << 20, "g" => 1 << 30 }.freeze

      # MAX_WORKERS of the engine: the scoreboard and the shared queue have room for each worker and its successor.
      MOST_WORKERS = 512

      module_function

      # @return [Boolean]
      def boolean(value)
        case value.is_a?(Integer) ? value.to_s : value
        when true, TRUE_WORDS then true
        when false, FALSE_WORDS then false
        else raise ArgumentError, "must be true or false"
        end
      end

      # @return [Boolean, Symbol] :auto
      def boolean_or_auto(value)
        value.to_s.casecmp?("auto") ? :auto : boolean(value)
      rescue ArgumentError
        raise ArgumentError, "must be true, false or auto"
      end

      # @param range [Range] of Integers
      # @param most [Integer] largest value of a range without an end
      # @return [Integer]
      def integer(value, range, most = LARGEST)
        number = value.is_a?(String) ? Integer(value, 10, exception: false) : value
        limits = range.end ? " from #{range.begin} to #{range.end}" : ", #{range.begin} or more"
        at_most(must(number, number.is_a?(Integer) && range.cover?(number), "a whole number#{limits}"), range.end || most)
      end

      # @return [Integer, Symbol] :auto
      def workers(value) = value.to_s == "auto" ? :auto : integer(value, 1.., MOST_WORKERS)

      # @param value [Integer, String] bytes, or 300M, 1G
      # @return [Integer, nil] bytes; `zero` for 0
      def size(value, zero = nil)
        number, unit = value.is_a?(String) ? value.match(/\A(\d+) ?([kmg]?)i?b?\z/i)&.captures : [value, ""]
        raise ArgumentError, "must be a size in bytes, or such as 300M or 1G" unless number.is_a?(String) || (number.is_a?(Integer) && !number.negative?)

        bytes = number.to_i * BYTES.fetch(unit.downcase)
        bytes.zero? ? zero : at_most(bytes, LARGEST)
      end

      # @return [Integer] bytes
      def bytes(value, range) = integer(size(value, 0), range)

      # Memory of a process. A small number without a unit is refused, because its user means megabytes.
      #
      # @return [Integer, nil] see #size
      def memory(value, zero = nil)
        plain = value.to_s.match?(/\A\d+\z/) ? value.to_i : 0
        raise ArgumentError, "must have a unit, such as #{plain}M" if plain.between?(1, (1 << 20) - 1)

        size(value, zero)
      end

      # @param value [Numeric, String] seconds, or 200ms, 30s, 5m, 1h
      # @return [Float] seconds, more than 0
      def seconds(value) = to_seconds(value, "seconds, more than 0", &:positive?)

      # @return [Float] seconds; often 0 means no limit
      def seconds_or_zero(value)
        to_seconds(value, "seconds, 0 or more") { |seconds| !seconds.negative? }
      end

      def to_seconds(value, expected)
        number, unit = value.is_a?(String) ? value.match(/\A(.*?) ?(ms|[smh])?\z/m).captures : [value, nil]
        number = Float(number, exception: false) if number.is_a?(String)
        seconds = number.to_f * SECONDS.fetch(unit) if number.is_a?(Numeric) && number.real?
        at_most(must(seconds, seconds&.finite? && yield(seconds), expected), MOST_SECONDS)
      end

      def at_most(number, most) = must(number, number <= most, "at most #{most}")

      # @param fits [Boolean]
      # @return the value
      def must(value, fits, expected) = fits ? value : raise(ArgumentError, "must be #{expected}")

      # @return [String] frozen
      def text(value)
        string = value.respond_to?(:to_path) ? value.to_path : value
        Text.utf8(must(string, string.is_a?(String) && !string.empty? && !string.include?("\0"), "some text")).dup.freeze
      end

      # @return [String] frozen
      def path(value)
        text(value).tap { |path| Text.expand(path, "/") }
      rescue ArgumentError => e
        # "~name/": there is no such user.
        raise ArgumentError, e.message.start_with?("must be") ? e.message : "must be a path; #{Text.utf8(e.message)}"
      end

      # @return [String, false] frozen; false for none
      def path_or_none(value) = /\A(?:none|no|false|off)\z/i.match?(value.to_s) ? false : path(value)

      # @return [String] an IP address and a port; a port alone is one that no other machine can reach
      def ip_port(value)
        host, port = value.to_s.delete_prefix("tcp://").match(/\A(?:(.+):)?(\d{1,5})\z/)&.captures
        ip = ip_address({ nil => "127.0.0.1", "localhost" => "127.0.0.1" }.fetch(host, host))
        return "#{ip.ipv6? ? "[#{ip}]" : ip}:#{port}" if ip && port.to_i.between?(1, 65_535)

        raise ArgumentError, "must be an IP address and port, such as 127.0.0.1:9394 or 0.0.0.0:9394, or a port alone"
      end

      # @return [IPAddr, nil] nil: the text is no address, or a network's
      def ip_address(text)
        require "ipaddr"
        IPAddr.new(text.to_s.delete_prefix("[").delete_suffix("]")) unless text.to_s.match?(%r{[/%]})
      rescue IPAddr::Error
        nil
      end

      # @return [String] frozen
      def token(value)
        must(value, value.is_a?(String) && /\A[\w.~+-]{16,200}\z/.match?(value), "16 or more letters, digits and . _ ~ + -").dup.freeze
      end

      # @return [String] one of `choices`
      def choice(value, *choices) = must(Text.utf8(value.to_s), choices.include?(value.to_s), choices.join(" or "))

      # @return [#call]
      def callable(value) = must(value, value.respond_to?(:call), "a block or anything that can be called")

      # @param value [Integer, String] a String is octal, as for chmod(1) and umask(1)
      # @return [Integer] permission bits
      def mode(value)
        bits = value.is_a?(String) && /\A0?o?[0-7]{1,4}\z/.match?(value) ? value.oct : value
        must(bits, bits.is_a?(Integer) && bits.between?(0, 0o777), "a file mode, from 0000 to 0777")
      end

      # @param value [String, Array<String>] "user", "user:group" or ["user", "group"]
      # @return [UserGroup]
      def user_group(value)
        names = value.is_a?(String) ? value.split(":", 2).map { |name| Text.utf8(name) } : value
        UserGroup.find(*must(names, names.is_a?(Array) && names.size.between?(1, 2) && names.all?(String), "a user, or user:group"))
      end

      # @return [Logger] the value itself
      def logger(value) = must(value, %i[debug info warn error fatal].all? { |level| value.respond_to?(level) }, "a Logger")
      private_class_method :to_seconds, :at_most, :must
    end
  end
end
