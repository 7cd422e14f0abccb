# frozen_string_literal: true

require "etc"
require "json"
require_relative "../log"
require_relative "../text"
require_relative "certificate_files"
require_relative "local_certificate"
require_relative "program"

module Fastrack
  module Proxy
    # Settings for the proxy. crates/proxy/src/settings.rs has the other side.
    class Settings
      # Seconds for a request's head, unless HeaderTimeout says something else. ClientTimeout is long, for clients behind a proxy.
      HEADER_TIMEOUT = 30

      # Seconds until a client takes more of a response, unless WriteTimeout says something else.
      WRITE_TIMEOUT = 60

      # Let's Encrypt's directories.
      SERVERS = {
        "production" => "https://acme-v02.api.letsencrypt.org/directory", "staging" => "https://acme-staging-v02.api.letsencrypt.org/directory"
      }.freeze

      # Most threads, unless ProxyThreads is set.
      THREADS = 4

      # Stands for a listener that is not open.
      Unbound = Struct.new(:server_name, :server_port) do
        def role = :edge
        def identity = 0
        def fileno = nil
        def closed? = false
        def to_s = "#{server_name}:#{server_port}"
      end

      # Checks the settings as a start would, without listening.
      #
      # @param configuration [Configuration]
      # @return [Array<String>] warnings
      # @raise [Error]
      def self.check(configuration)
        Proxy.inner_address(configuration)
        lines = Program.run("check", order: unbound(configuration).message)
        lines.filter_map { |line| line.delete_prefix("warn ") if line.start_with?("warn ") }
      end

      # @return [Settings] for a check without listeners
      def self.unbound(configuration)
        ports = configuration.addresses.select(&:port)
        new(configuration, ports.map { |address| Unbound.new(Listener.authority(address.host), address.port.to_s) })
      end

      # @return [Array<Listener>]
      attr_reader :listeners

      # @param configuration [Configuration]
      # @param listeners [Array<Listener>] of the server
      # @param log [IO, nil] target of the access log
      # @param upstream [File, nil] see Proxy.open_path
      # @param files [CertificateFiles]
      # @param releases [Array<Configuration>] of the code that serves: files and certificates are the first one's, and files of the others are
      #   found, too
      def initialize(configuration, listeners, log = nil, upstream = nil, files: CertificateFiles.new(Proxy.user(configuration)), releases: [configuration])
        @configuration = configuration
        @release, *@others = releases
        @log = log
        @upstream = upstream
        @certificate_files = files
        @listeners = listeners.select { |listener| listener.role == :edge && !listener.closed? }
      end

      # @param number [Integer] that of the order, for the answer; 0: those of the start
      # @param strict [Boolean] whether a certificate that cannot be used, and has no earlier one, is an error; else its listener refuses
      #   handshakes
      # @return [Array(String, Array<#fileno>)] a line, and the descriptors that belong to it
      # @raise [Error] when a certificate cannot be made
      def message(number = 0, strict: true)
        @passed = []
        settings = { **to_h, number: number, strict: strict, stderr: pass(STDERR), upstream_descriptor: pass(@upstream) }.compact
        ["#{JSON.generate(settings.merge(descriptors: @passed.size))}\n", @passed]
      end

      # Called when the proxy uses certificates of a reading.
      #
      # @param number [Integer] see CertificateFiles
      def loaded(number) = @certificate_files.loaded(number)

      # Settings that need a new proxy. A running proxy takes all others.
      def fixed = [threads, Proxy.user(@configuration), acme]

      # @return [Hash]
      # @raise [Error]
      def to_h
        {
          listeners: @listeners.map { |listener| describe(listener) }, upstream: Proxy.path, threads: threads, h2c: @configuration.h2c,
          header_timeout: @configuration.header_timeout || [HEADER_TIMEOUT, @configuration.client_timeout].min,
          write_timeout: @configuration.write_timeout || [WRITE_TIMEOUT, @configuration.client_timeout].min,
          keep_alive_requests: @configuration.keep_alive ? @configuration.keep_alive_requests : 1,
          keep_alive_timeout: @configuration.keep_alive_timeout, graceful_timeout: @configuration.graceful_timeout,
          max_header_size: @configuration.max_header_size, max_header_fields: @configuration.max_header_fields,
          max_request_target: @configuration.max_request_target, max_ssl_rate: @configuration.max_ssl_rate, trusted_proxies: @configuration.trusted_proxies,
          force_ssl_except: @configuration.force_ssl_except, acme: acme, access_log: access_log,
          compress: @configuration.compress.nil? || @configuration.compress, **files
        }.compact
      end

      private

      def threads = @configuration.proxy_threads || Etc.nprocessors.clamp(1, THREADS)

      def files
        {
          public_files: folder(@release.public_files), other_public_files: @others.map { |one| folder(one.public_files) }.compact,
          sendfile_root: folder(@release.sendfile_root), other_sendfile_roots: @others.map { |one| folder(one.sendfile_root) }.compact,
          cache_control: @release.cache_control, public_file_headers: @release.public_file_headers,
          public_links: @release.public_links&.map { |path| folder(path) }
        }
      end

      def folder(path) = (Text.expand(path) if path)

      def describe(listener)
        { name: listener.to_s, descriptor: pass(listener), identity: listener.identity, **(tls?(listener) ? certificates(listener) : {}),
          redirect_to: redirect(listener), proxy_protocol: proxy_protocol?(listener) }.compact
      end

      def address(listener, configuration = @configuration) = Proxy.address_of(listener, configuration)

      def tls?(listener) = address(listener)&.tls? || false

      def proxy_protocol?(listener) = address(listener)&.proxy_protocol? || false

      def certificates(listener)
        given = (address(listener, @release)&.then { |one| one.certificates if one.tls? } || address(listener).certificates)
        # The proxy makes these files, and reads them itself.
        return { certificates: { pairs: [acme_files.map { |path| { path: path } }] } } if given.empty? && acme_files

        given = given.empty? ? [LocalCertificate.for(address(listener).host, development: @configuration.development?)] : given.map { |pair| pair.map { |path| Text.expand(path) } }
        found, kept = @certificate_files.of(listener.to_s, given)
        { certificates: reading(found), kept_certificates: (reading(kept) if kept) }
      end

      def reading(one) = { number: one.number, descriptor: pass(one.copy), pairs: one.parts.each_slice(2).to_a }

      # @return [Hash, nil] nil without an access log
      def access_log
        { descriptor: pass(@log), format: @configuration.access_log_format }.compact if @log
      end

      # @param one [#fileno, nil]
      # @return [Integer, nil] number of the descriptor among those of the message; nil in a check
      def pass(one)
        return if one&.fileno.nil?

        (@passed ||= []) << one
        @passed.size - 1
      end

      # @return [Hash, nil] nil without domains
      def acme
        domains = @configuration.tls_domains or return
        contact = @configuration.acme_contact&.then { |text| text.include?(":") ? text : "mailto:#{text}" }
        { domains: domains, folder: acme_folder, contact: contact, account: @configuration.acme_account, server: acme_server }.compact
      end

      def acme_server = SERVERS.fetch(@configuration.acme_server, @configuration.acme_server)

      # Each authority has a folder of its own: a certificate of a staging one is none for clients.
      def acme_folder = Text.expand("#{@configuration.acme_folder || "#{LocalCertificate.folder}/acme"}/#{acme_server.sub(%r{\Ahttps?://}, "").gsub(/[^A-Za-z0-9.-]+/, "_")}")

      # The proxy puts the certificate there (crates/proxy/src/acme.rs).
      def acme_files = @configuration.tls_domains && %w[pem key].map { |ending| "#{acme_folder}/#{@configuration.tls_domains.first}.#{ending}" }

      # @return [Integer, nil] the port of TLS for the redirect of this listener
      def redirect(listener)
        return if !@configuration.force_ssl || tls?(listener)

        @listeners.find { |one| tls?(one) }&.server_port&.to_i
      end
    end
  end
end
