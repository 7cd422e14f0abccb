# frozen_string_literal: true

require_relative "../configuration/option"
require_relative "../error"
require_relative "../listener"
require_relative "../log"
require_relative "../text"
require_relative "sockets"

module Fastrack
  # An address to listen on, in a user's form, with settings of the socket.
  #
  #     8080   "8080"   "*:8080"   "10.0.0.5:8080"   "[::1]:8080"   "tcp://localhost:8080"
  #     "/run/app.sock"   "~/app.sock"   "./app.sock"   "unix:///run/app.sock"   "unix:///run/app.sock?umask=0111"
  #     "ssl://0.0.0.0:443?cert=a.pem&key=a.key"   "ssl://localhost:3000", with a certificate of this machine's own
  class Address
    PORT = /\A(?:(?:tcp|http|ssl|https):\/\/)?(?:(?<host>\[[\w:.%]+\]|[^\[\]:\/]*):)?(?<port>\d+)\/?\z/.freeze
    PATH = /\A(?:unix:(?:\/\/)?+(?<path>[^@\/].*|\/+[^\/].*)|(?<path>[^:]*\/.*|[^:]+\.sock))\z/.freeze
    IN_HOME = /\A(?<path>~.*)\z/.freeze
    TLS = /\A(?:ssl|https):\/\//.freeze
    ABSTRACT = /\Aunix:(?:\/\/)?@/.freeze

    # Puma's form of settings. Without a scheme a question mark is a part of the path.
    QUERY = /\A(?<place>(?:unix|tcp|http|ssl|https):[^?]*)\?(?<settings>.*)\z/.freeze

    FORMS = "a port, host:port, [IPv6]:port or a path"

    # Types of the settings: methods of Option::Types. Settings of Unicorn's without effect have no type: the engine sends a response at
    # once, so TCP_NOPUSH would hold back nothing.
    SETTINGS = {
      backlog: [:integer, 1..2_147_483_647], reuseport: [:boolean], tcp_nodelay: [:boolean], tcp_defer_accept: [:integer, 0..2_147_483_647],
      ipv6only: [:boolean], rcvbuf: [:integer, 1..2_147_483_647], sndbuf: [:integer, 1..2_147_483_647], mode: [:mode], umask: [:mode],
      tries: [:integer, -1..], delay: [:seconds_or_zero], tcp_nopush: nil, accept_filter: nil,
      cert: [:paths], key: [:paths], proxy_protocol: [:boolean], verify_mode: [:choice, "none"],
      no_tlsv1: nil, no_tlsv1_1: nil, ssl_cipher_filter: nil, ssl_ciphersuites: nil, verification_flags: nil
    }.freeze

    # Settings of an address with TLS only.
    OF_TLS = %i[cert key].freeze

    SPELLINGS = { reuse_port: :reuseport, so_reuseport: :reuseport, low_latency: :tcp_nodelay }.freeze

    class << self
      # @param place [Integer, String] see above
      # @param settings [Hash{Symbol, String => Object}] see SETTINGS
      # @return [Address]
      # @raise [ArgumentError] with the expected form
      def parse(place, settings = {})
        text = (place.respond_to?(:to_path) ? place.to_path : place.to_s).b
        raise ArgumentError, "must name a file: abstract sockets have none, which nginx takes" if ABSTRACT.match?(text)

        if (match = QUERY.match(text))
          text = match[:place]
          settings = match[:settings].split("&").to_h { |pair| [*pair.split("=", 2), "true"].first(2) }.merge(settings)
        end
        if (match = PORT.match(text))
          host = Text.utf8(match[:host].to_s.sub(/\A\*?\z/, "0.0.0.0"))
          new(host: host, port: Option::Types.integer(match[:port], 0..65_535), tls: TLS.match?(text), **typed(settings))
        elsif (match = PATH.match(text) || IN_HOME.match(text))
          new(path: Option::Types.text(match[:path]), **typed(settings))
        else
          raise ArgumentError, "must be #{FORMS}"
        end
      end

      # @param value [Array<Address>, String] a String may have several addresses, separated by commas
      # @return [Array<Address>] frozen
      # @raise [ArgumentError] with the expected form
      def list(value)
        list = value.is_a?(String) ? value.b.split(",") : Array(value)
        raise ArgumentError, "must be #{FORMS}" if list.empty?

        list.map { |one| one.is_a?(Address) ? one : parse(one) }.freeze
      end

      private

      def typed(settings)
        settings.to_h { |key, value| [SPELLINGS.fetch(key.to_sym, key.to_sym), value] }.filter_map do |key, value|
          type, *limits = SETTINGS.fetch(key) { raise ArgumentError, "has no setting #{Text.utf8(key.to_s)}#{Error.suggestion(key, SETTINGS.keys)}" }
          value = { true => 1, false => 0 }.fetch(value, value) if key == :tcp_defer_accept
          [key, Option::Types.public_send(type, value, *limits)] unless type.nil? || value.nil?
        rescue ArgumentError => e
          raise ArgumentError, SETTINGS.key?(key) ? "#{key} #{e.message}" : e.message
        end.to_h
      end
    end

    # @return [String, nil] nil for a unix socket
    attr_reader :host
    # @return [Integer, nil]
    attr_reader :port
    # @return [String, nil]
    attr_reader :path
    # @return [Hash{Symbol => Object}] see SETTINGS
    attr_reader :settings

    # @param tls [Boolean] whether clients speak TLS, which Fastrack::Proxy does
    # @param settings see SETTINGS, already of their types
    # @raise [ArgumentError] when the settings do not fit
    def initialize(host: nil, port: nil, path: nil, tls: false, **settings)
      @host = host
      @port = port
      @path = path
      @tls = tls
      @settings = settings
      check_certificates
    end

    def tls? = @tls

    # Whether each connection begins with a head of the PROXY protocol.
    def proxy_protocol? = @settings.fetch(:proxy_protocol, false)

    # @return [Array<Array(String, String)>] paths of certificates and their keys; empty: one of this machine's own is made
    def certificates = @settings.fetch(:cert, []).zip(@settings.fetch(:key, []))

    # @return [String] the absolute path
    # @raise [ListenError] when the path begins with a missing user ("~name")
    def file
      Text.expand(@path)
    rescue ArgumentError => e
      raise ListenError, "cannot listen on #{@path}: #{Text.utf8(e.message)}"
    end

    # Tries while the address is in use, at least one; -1: without end.
    def tries = @settings.fetch(:tries, 1).then { |tries| tries.zero? ? 1 : tries }

    # Seconds between two tries.
    def delay = @settings.fetch(:delay, 0.5)

    # A copy with defaults for missing settings.
    def with_defaults(**settings) = with(**settings, **@settings)

    # A copy with other settings.
    def with(**settings) = self.class.new(host: @host, port: @port, path: @path, tls: @tls, **@settings, **settings)

    # @return [Array<Listener>] at least one; a host name may have several addresses
    # @raise [AddressInUseError, ListenError]
    def open
      backlog = @settings.fetch(:backlog, Socket::SOMAXCONN)
      return [UNIXListener.open(@path.start_with?("~") ? file : @path, backlog: backlog, mode: mode)] if @path

      tcp = @settings.slice(:reuseport, :ipv6only, :tcp_nodelay, :tcp_defer_accept, :rcvbuf, :sndbuf)
      TCPListener.open(@host, @port, backlog: backlog, **tcp)
    end

    # Tries as often as #tries says.
    #
    # @return [Array<Listener>]
    # @raise [AddressInUseError, ListenError]
    def open_with_retries
      tried = 0
      begin
        open
      rescue AddressInUseError => e
        raise if (tried += 1) == tries

        Log.line("#{e.message}; trying again every #{delay} s") if tried == 1
        sleep(delay)
        retry
      end
    end

    def to_s = @path || "#{Listener.authority(@host)}:#{@port}"

    def ==(other)
      other.is_a?(Address) && to_s == other.to_s
    end
    alias eql? ==

    def hash = to_s.hash

    private

    def check_certificates
      stray = OF_TLS.find { |name| @settings.key?(name) } unless @tls
      raise ArgumentError, "has #{stray} without ssl://" if stray
      raise ArgumentError, "needs proxy_protocol on a port, not on a unix socket" if proxy_protocol? && @path
      return if @settings.fetch(:cert, []).size == @settings.fetch(:key, []).size

      raise ArgumentError, "needs a key for each cert: ssl://0.0.0.0:443?cert=a.pem&key=a.key"
    end

    def mode = @settings[:mode] || (UNIXListener::MODE & ~@settings.fetch(:umask, 0))
  end
end
