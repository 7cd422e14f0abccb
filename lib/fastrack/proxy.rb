# frozen_string_literal: true

require_relative "error"
require_relative "listener/address"
require_relative "process/safe_file"
require_relative "process/user_folder"

module Fastrack
  # The proxy: a process of its own that faces the clients of all ports, for TLS, HTTP/2, files and compression. It asks the workers over a
  # unix socket of the server's own. The master starts it where an option asks for it.
  module Proxy
    # Names the socket to a new master (USR2).
    VARIABLE = "FASTRACK_PROXY"

    # Only the proxy may connect: the workers believe what the proxy says of its clients.
    MODE = 0o600

    # Opens a file's place without the file (open(2)). Linux has it, Ruby does not name it.
    O_PATH = 0o10000000

    class << self
      # @return [String, nil] the socket's path, once #inner_address was called
      attr_accessor :path

      # @param configuration [Configuration]
      # @return [Address] of the workers, for the proxy
      def inner_address(configuration)
        uid = user(configuration)&.uid || Process.euid
        # A proxy that connects by a descriptor needs no way to the folder, which nobody else can enter then.
        owner = by_descriptor? ? Process.euid : uid
        @path ||= ENV.delete(VARIABLE) || "#{UserFolder.of(owner)}/#{Process.pid}.proxy"
        InnerAddress.new(path: @path, mode: MODE, uid: uid, owner: owner)
      end

      # @return [File, nil] the place of the workers' socket, for the proxy; nil: the proxy goes by the path
      # @raise [SystemCallError]
      def open_path = (File.new(@path, O_PATH) if by_descriptor?)

      # Whether a process can connect to a unix socket by a descriptor of its file, by /proc/self/fd.
      def by_descriptor? = RUBY_PLATFORM.include?("linux")

      # @return [UserGroup, nil] the user that the proxy runs as; nil: this process's
      def user(configuration) = (configuration.proxy_user || configuration.user if Process.euid.zero?)

      # Whether the app's user is the one who reads the private keys, or who has them made by an authority.
      def made_by_apps_user?(configuration)
        keys = configuration.addresses.select(&:tls?).map(&:certificates)
        return keys.any?(&:any?) || (keys.any? && configuration.tls_domains) unless SafeFile.app_user

        configuration.tls_domains && keys.any?(&:empty?) && user(configuration).uid == configuration.user.uid
      end

      # @return [Array<String>] paths of private keys that root reads, and the app's user can read as well
      def keys_of_app(configuration)
        return [] unless SafeFile.app_user

        keys = configuration.addresses.select(&:tls?).flat_map(&:certificates).map { |_, key| Text.expand(key) }
        SafeFile.app_user.act { keys.uniq.select { |path| File.readable?(path) } }
      end

      # Whether a listener is the workers' side for the proxy.
      #
      # @param listener [Listener]
      def inner?(listener) = !@path.nil? && listener.unix_path == @path

      # Sets who accepts the clients of each listener.
      #
      # @param listeners [Array<Listener>]
      # @param configuration [Configuration]
      def assign(listeners, configuration)
        listeners.each do |listener|
          listener.role = if inner?(listener) then :inner
                          elsif configuration.proxy? && listener.tcp? then :edge
                          end
          listener.tls = listener.role == :edge && address_of(listener, configuration)&.tls?
        end
      end

      # The address in the configuration to which a listener belongs. A supervisor's listener is found by its port.
      #
      # @param listener [Listener]
      # @param configuration [Configuration]
      # @return [Address, nil]
      def address_of(listener, configuration)
        found = configuration.addresses.select { |one| one.port && [0, listener.server_port.to_i].include?(one.port) }
        found.find { |one| Listener.authority(one.host) == listener.server_name } || found.first
      end
    end

    # The workers' address for the proxy, in a folder that only its owner can use.
    class InnerAddress < Address
      # @param uid [Integer] of the socket's owner
      # @param owner [Integer] of the folder's owner
      def initialize(uid:, owner:, **settings)
        super(**settings)
        @uid = uid
        @owner = owner
      end

      # @return [Array<Listener>]
      # @raise [ListenError]
      def open
        make_folder(File.dirname(path))
        remove_stale(File.dirname(path))
        super.tap { give(path, @uid) }
      rescue SystemCallError => e
        raise ListenError, "cannot listen on #{path}: #{SafeFile.reason(e)}"
      end

      private

      def make_folder(folder)
        SafeFile.at(path) { Dir.mkdir(folder, 0o700) && give(folder, @owner) } unless File.exist?(folder)
        return if UserFolder.own?(folder, @owner)

        raise ListenError, "cannot listen on #{path}: #{folder} must be a folder of this user's alone"
      end

      # Removes the sockets of servers that were killed. Only the socket itself tells: after USR2 the pid in its name is that of an ended
      # master.
      def remove_stale(folder)
        SafeFile.at(path) { Dir.glob("#{folder}/*.proxy") { |file| File.unlink(file) unless UNIXListener.in_use?(file) } }
      rescue SystemCallError
        # Another server has just removed it.
        nil
      end

      # Gives a file that root has made to its user.
      def give(file, uid) = Process.euid.zero? && !uid.zero? && File.lstat(file).uid.zero? && File.lchown(uid, nil, file)
    end
  end
end
