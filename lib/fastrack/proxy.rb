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

    class << self
      # @return [String, nil] the socket's path, once #inner_address was called
      attr_reader :path

      # @param configuration [Configuration]
      # @return [Address] of the workers, for the proxy
      def inner_address(configuration)
        @path ||= ENV.delete(VARIABLE) || "#{UserFolder.of(user(configuration)&.uid || Process.euid)}/#{Process.pid}.proxy"
        InnerAddress.new(path: @path, mode: MODE, uid: user(configuration)&.uid || Process.euid)
      end

      # @return [UserGroup, nil] the user that the proxy runs as; nil: this process's
      def user(configuration) = (configuration.proxy_user || configuration.user if Process.euid.zero?)

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
        end
      end
    end

    # The workers' address for the proxy, in a folder that only its owner can use.
    class InnerAddress < Address
      # @param uid [Integer] of the owner
      def initialize(uid:, **settings)
        super(**settings)
        @uid = uid
      end

      # @return [Array<Listener>]
      # @raise [ListenError]
      def open
        make_folder(File.dirname(path))
        remove_stale(File.dirname(path))
        super.tap { own(path) }
      rescue SystemCallError => e
        raise ListenError, "cannot listen on #{path}: #{SafeFile.reason(e)}"
      end

      private

      def make_folder(folder)
        SafeFile.at(path) { Dir.mkdir(folder, 0o700) && own(folder) } unless File.exist?(folder)
        return if UserFolder.own?(folder, @uid)

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

      # Gives a file that root has made to the proxy's user.
      def own(file) = Process.euid.zero? && !@uid.zero? && File.lstat(file).uid.zero? && File.lchown(@uid, nil, file)
    end
  end
end
