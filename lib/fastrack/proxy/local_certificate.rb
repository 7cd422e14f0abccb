# frozen_string_literal: true

require "socket"
require_relative "../log"
require_relative "../text"
require_relative "program"

module Fastrack
  module Proxy
    # A certificate for a developer's machine, by an authority of this user's own: for `ssl://` without cert.
    module LocalCertificate
      # Hosts of each certificate.
      HOSTS = %w[localhost 127.0.0.1 ::1].freeze

      @made = {}

      module_function

      # Makes a certificate, once for each host. The authority is made once, and stays.
      #
      # @param host [String] address to listen on
      # @param development [Boolean] whether nobody but the developer is a client
      # @return [Array(String, String)] paths of the certificate and its key
      # @raise [Error]
      def for(host, development:)
        @made[host] ||= begin
          authority, *files = Program.run("local-certificate", folder, *hosts(host))
          others = ", which no client trusts: name cert and key, or tls_domains" unless development
          Log.line("the certificate of #{host} is by this user's own authority#{others}; to trust it, add #{authority} to the system's " \
                   "or the browser's authorities (#{hint(authority)})", development ? :info : :warn)
          files
        end
      end

      # @return [String] XDG Base Directory Specification
      def folder = File.join(Text.expand(ENV.fetch("XDG_DATA_HOME", "~/.local/share")), "fastrack")

      def hosts(host)
        every = %w[0.0.0.0 [::] ::].include?(host)
        [*HOSTS, *(every ? [Socket.gethostname] : [host.delete_prefix("[").delete_suffix("]")])].uniq
      end

      # How to trust the authority.
      def hint(authority)
        return "sudo security add-trusted-cert -d -k /Library/Keychains/System.keychain #{authority}" if RUBY_PLATFORM.include?("darwin")

        "Debian: sudo cp #{authority} /usr/local/share/ca-certificates/fastrack.crt && sudo update-ca-certificates"
      end
      private_class_method :hosts, :hint
    end
  end
end
