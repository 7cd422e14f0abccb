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

    # Whether this process already is that user.
    def current? = Process.euid == uid && Process.egid == gid

    # Switches this process to the user for good. Groups come first, while the process still has the right to change them.
    #
    # @raise [SystemCallError]
    def switch
      return if current?

      Process.initgroups(name, gid)
      Process::GID.change_privilege(gid)
      Process::UID.change_privilege(uid)
    end
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
      raise ConfigurationError, "#{source} #{e.message}#{"; #{given}" unless %i[ControlToken ACMEAccount].include?(@name)}"
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

      # Networks whose addresses nobody on the internet has: RFC 1122 §3.2.1.3, RFC 1918, RFC 4193.
      PRIVATE_NETWORKS = %w[127.0.0.0/8 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 ::1/128 fc00::/7].freeze

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

      # @param other [String] a third value
      # @return [Boolean, Symbol] a Symbol for the third value
      def boolean_or(value, other)
        value.to_s.casecmp?(other) ? other.to_sym : boolean(value)
      rescue ArgumentError
        raise ArgumentError, "must be true, false or #{other}"
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

      # @param value [String, Array<String>] several with commas
      # @return [Array<String>] frozen
      def paths(value) = (value.is_a?(String) ? value.split(",") : Array(value)).map { |one| path(one) }.freeze

      # @param value [String, Array<String>] several with commas
      # @return [Array<String>] frozen
      def domains(value)
        list = (value.is_a?(String) ? value.split(",") : Array(value)).map { |one| one.to_s.strip.downcase }
        fits = list.any? && list.all? { |one| one.match?(/\A(?=.{1,253}\z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\z/) }
        must(list, fits, "domains, such as example.com").map { |one| Text.utf8(one).freeze }.freeze
      end

      # @return [Array(String, String)] frozen: an id, and a key in Base64 for URLs
      def token_pair(value)
        must(value.to_s.match(/\A([^:\s]+):([\w-]+=*)\z/)&.captures, value.to_s.match?(/\A[^:\s]+:[\w-]+=*\z/), "ID:KEY").map { |one| Text.utf8(one).freeze }.freeze
      end

      # @param value [String, Array<String>] several with commas: 10.0.0.0/8, 192.0.2.1; private: the networks of RFC 1918 and this machine
      # @return [Array<String>] frozen
      def networks(value)
        list = (value.is_a?(String) ? value.split(",") : Array(value)).map { |one| one.to_s.strip }
        list.flat_map { |one| one == "private" ? PRIVATE_NETWORKS : [network(one)] }.freeze
      end

      def network(text)
        address, length = text.split("/", 2)
        ip = ip_address(address)
        bits = ip&.ipv6? ? 128 : 32
        fits = ip && !text.end_with?("/") && (length.nil? || (length.match?(/\A\d{1,3}\z/) && length.to_i <= bits))
        must(Text.utf8(text), fits, "networks, such as 10.0.0.0/8, or private").dup.freeze
      end

      # @param value [Array, String] pairs of a pattern and a value; or one pair with a space between them
      # @return [Array<Array(String, String)>] frozen
      def cache_rules(value)
        pairs = value.is_a?(String) ? [value.split(/[ ,=]+/, 2)] : value
        fits = pairs.is_a?(Array) && pairs.all? { |pair| pair.is_a?(Array) && pair.size == 2 && pair.all?(String) && pair.last.match?(/\A[\x21-\x7e]+(?: [\x21-\x7e]+)*\z/) }
        must(pairs, fits, "a pattern of paths and a Cache-Control, such as \"/assets/* public, max-age=31536000, immutable\"")
          .map { |pair| pair.map { |text| Text.utf8(text).dup.freeze } }.freeze
      end

      # Fields that describe the bytes of a response, or its connection.
      OWN_FIELDS = /\A(?:connection|content-(?:encoding|length|range|type)|date|etag|last-modified|trailer|transfer-encoding|upgrade)\z/i.freeze

      # @param value [Hash, Array, String] names and values; or one of each as "Name: value"
      # @return [Array<Array(String, String)>] frozen
      def fields(value)
        pairs = value.is_a?(String) ? [value.split(/: */, 2)] : value.respond_to?(:to_a) && value.to_a
        fits = pairs && pairs.all? { |pair| pair.is_a?(Array) && pair.size == 2 && field?(*pair.map(&:to_s)) }
        must(pairs, fits, "fields such as Access-Control-Allow-Origin: *, and none that describes the file's bytes")
          .map { |pair| pair.map { |text| Text.utf8(text.to_s).dup.freeze } }.freeze
      end

      def field?(name, value)
        name.match?(/\A[\w!#$%&'*+.^`|~-]+\z/) && !OWN_FIELDS.match?(name) && value.match?(/\A[\x21-\x7e]+(?: +[\x21-\x7e]+)*\z/)
      end

      # @param value [String, Array<String>] several with commas
      # @return [Array<String>] frozen
      def path_patterns(value)
        list = (value.is_a?(String) ? value.split(",") : Array(value)).map { |one| one.to_s.strip }
        must(list, list.all? { |one| one.match?(%r{\A/[\x21-\x7e]*\z}) }, "paths, such as /up, or /health/*").map { |one| Text.utf8(one).dup.freeze }.freeze
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
      private_class_method :to_seconds, :at_most, :must, :network, :field?
    end
  end
end
