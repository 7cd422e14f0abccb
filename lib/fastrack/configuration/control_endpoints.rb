# frozen_string_literal: true

require_relative "../error"
require_relative "../process/proc_stat"
require_relative "../process/user_folder"
require_relative "../text"

module Fastrack
  # Where the monitor listens. Monitor.start takes these values as an Array.
  #
  # @attr path [String, nil] absolute path of the unix socket; by default beside the pid file
  # @attr address [String, nil] "127.0.0.1:9394"
  # @attr token [String, nil]
  ControlEndpoints = Struct.new(:path, :address, :token) do
    # @param configuration [Configuration]
    # @raise [ConfigurationError]
    def initialize(configuration)
      super(path_of(configuration), configuration.control_listen, configuration.control_token)
      if path && configuration.addresses.any? { |address| address.path && Text.expand(address.path) == path }
        raise ConfigurationError, "#{configuration.source(:ControlPath)}: the server itself listens at #{path}"
      end
      return unless address && !token

      raise ConfigurationError, "#{configuration.source(:ControlListen)} needs ControlToken: #{readers} could read what the server does"
    end

    private

    def readers
      address.match?(/\A(?:127\.|\[::1\])/) ? "every user of this machine" : "whoever reaches #{address}"
    end

    def path_of(configuration)
      return if configuration.control_path == false
      return Text.expand(configuration.control_path) if configuration.control_path

      configuration.pid && "#{Text.expand(configuration.pid).delete_suffix(".pid")}.control"
    end
  end

  # The monitor's socket where neither a pid file nor ControlPath names one. The socket is in a folder of the server's user, and its name is
  # the master's pid. So commands that find a server by its directory also reach its monitor.
  module DefaultControlSocket
    class << self
      # @return [String, nil] this process's socket; nil without a safe folder
      def path = UserFolder.own?(UserFolder.of(Process.euid), Process.euid) ? in_folder(Process.euid, Process.pid) : nil

      # Makes the folder, and removes the sockets of servers that were killed.
      #
      # @return [String, nil] see #path
      def make
        folder = UserFolder.of(Process.euid)
        Dir.mkdir(folder, 0o700) if File.directory?("/proc/self") && !File.exist?(folder)
        path&.tap { Dir.glob("#{folder}/*.control") { |file| File.unlink(file) unless ProcStat.running?(File.basename(file).to_i) } }
      rescue SystemCallError
        nil
      end

      # @param pid [Integer] a master's pid, as this process sees it
      # @return [String] path of that master's default socket. A master in a container has paths and pids of its own.
      # @raise [SystemCallError] when there is no such process
      def of(pid)
        user = ProcStat.users(pid)[1]
        name = in_folder(user, ProcStat.inner_pid(pid) || pid)
        [name, "/proc/#{pid}/root#{name}"].find { |path| UserFolder.own?(File.dirname(path), user) && File.socket?(path) } || name
      end

      private

      def in_folder(user, pid) = "#{UserFolder.of(user)}/#{pid}.control"
    end
  end
end
