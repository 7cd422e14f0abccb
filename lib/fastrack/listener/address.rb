# frozen_string_literal: true

require_relative "../error"
require_relative "."
require_relative "../nearest_name"
require_relative "../configuration/option"
require_relative "tcp"
require_relative "unix"

module Fastrack
  # A place to listen on, as users write it, with what they want of the socket there.
  #
  #     8080   "8080"   "*:8080"   "10.0.0.5:8080"   "[::1]:8080"   "tcp://localhost:8080"
  #     "/run/app.sock"   "~/app.sock"   "./app.sock"   "unix:///run/app.sock"
  class Address
    PORT = /\A(?:(?:tcp|http):\/\/)?(?:(?<host>\[[\w:.%]+\]|[^\[\]:\/]*):)?(?<port>\d+)\/?\z/.freeze
    PATH = /\A(?:unix:(?:\/\/)?)?(?<path>[^:]*\/.*|[^:]+\.sock)\z/.freeze
    TLS = /\A(?:ssl|https):\/\//.freeze

    FORMS = "a port, host:port, [IPv6]:port or a path"

    # What may be said about a socket, and how it is understood. Those of Unicorn's that have no effect are taken, too:
    # the engine writes a response at once, so that there is nothing for TCP_NOPUSH to hold back.
    SETTINGS = {
      backlog: ->(value) { OptionType.integer(value, 1..2_147_483_647) },
      reuseport: ->(value) { OptionType.boolean(value) },
      tcp_nodelay: ->(value) { OptionType.boolean(value) },
      tcp_defer_accept: ->(value) { OptionType.integer(value == true ? 1 : value || 0, 0..) },
      ipv6only: ->(value) { OptionType.boolean(value) },
      rcvbuf: ->(value) { OptionType.integer(value, 1..) },
      sndbuf: ->(value) { OptionType.integer(value, 1..) },
      mode: ->(value) { OptionType.mode(value) },
      umask: ->(value) { OptionType.mode(value) },
      tries: ->(value) { OptionType.integer(value, -1..) },
      delay: ->(value) { OptionType.seconds(value, zero: true) },
      tcp_nopush: nil, accept_filter: nil
    }.freeze

    # Other spellings.
    SPELLINGS = { reuse_port: :reuseport, so_reuseport: :reuseport }.freeze

    # @return [String, nil] nil for a unix socket
    attr_reader :host
    # @return [Integer, nil]
    attr_reader :port
    # @return [String, nil]
    attr_reader :path

    # @param place [Integer, String] see above
    # @param settings [Hash{Symbol, String => Object}] see SETTINGS
    # @return [Address]
    # @raise [ArgumentError] with what was expected
    def self.parse(place, settings = {})
      text = place.respond_to?(:to_path) ? place.to_path : place.to_s
      raise ArgumentError, "no TLS, which is for what stands in front" if TLS.match?(text)

      if (match = PORT.match(text))
        host = match[:host].to_s.sub(/\A\*?\z/, "0.0.0.0")
        new(host: host, port: OptionType.integer(match[:port], 0..65_535), **typed(settings))
      elsif (match = PATH.match(text) || /\A(?<path>~.*)\z/.match(text))
        new(path: OptionType.text(match[:path]), **typed(settings))
      else
        raise ArgumentError, FORMS
      end
    end

    def self.typed(settings)
      settings.to_h { |key, value| [SPELLINGS.fetch(key.to_sym, key.to_sym), value] }.filter_map do |key, value|
        type = SETTINGS.fetch(key) { raise ArgumentError, "no #{key}#{NearestName.hint(key, SETTINGS.keys)}" }
        [key, type.call(value)] unless type.nil? || value.nil?
      rescue ArgumentError => e
        raise ArgumentError, SETTINGS.key?(key) ? "#{key}: #{e.message}" : e.message
      end.to_h
    end
    private_class_method :typed

    # @param settings see SETTINGS, of their types
    def initialize(host: nil, port: nil, path: nil, **settings)
      @host = host
      @port = port
      @path = path
      @settings = settings
    end

    # How often to try, at least once, where something else listens; -1: until it does not any more.
    def tries
      @settings.fetch(:tries, 1).then { |tries| tries.zero? ? 1 : tries }
    end

    # Seconds from one try to the next.
    def delay
      @settings.fetch(:delay, 0.5)
    end

    # The same with other settings where it has none of its own.
    def with_defaults(**settings)
      self.class.new(host: @host, port: @port, path: @path, **settings, **@settings)
    end

    # Listens there.
    #
    # @return [Array<Listener>] at least one: a name may have several addresses
    # @raise [AddressInUseError, ListenError]
    def open
      backlog = @settings.fetch(:backlog, Socket::SOMAXCONN)
      return [UNIXListener.open(@path.sub(/\A~.*/) { |home| File.expand_path(home) }, backlog: backlog, mode: mode)] if @path

      tcp = @settings.slice(:reuseport, :ipv6only, :tcp_nodelay, :tcp_defer_accept, :rcvbuf, :sndbuf)
      TCPListener.open(@host, @port, backlog: backlog, **tcp)
    end

    def to_s
      @path || "#{Listener.authority(@host)}:#{@port}"
    end

    def ==(other)
      other.is_a?(Address) && to_s == other.to_s
    end
    alias eql? ==

    def hash
      to_s.hash
    end

    private

    def mode
      @settings[:mode] || (UNIXListener::MODE & ~@settings.fetch(:umask, 0))
    end
  end
end
