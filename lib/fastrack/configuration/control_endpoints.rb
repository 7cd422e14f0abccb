# frozen_string_literal: true

require_relative "../error"
require_relative "../process/proc_stat"
require_relative "../text"

module Fastrack
  # Where the monitor is to be found; Monitor.start takes it as an Array.
  #
  # @attr path [String, nil] of its unix socket, absolute: by default beside the pid file
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

  # The monitor's socket where neither a pid file nor ControlPath names one: in a folder of the server's user, by the master's pid. So
  # commands that find the server by its directory can ask it, too.
  module DefaultControlSocket
    # Root's folder, where no other user can put anything (SafeFile), and the folder that has other users'. Not TMPDIR, which commands need
    # not have in common with the server.
    ROOTS = "/run/fastrack"
    PARENT = "/tmp"

    class << self
      # @return [String, nil] this process's; nil where there can be none
      def path = own?(folder_of(Process.euid)) ? in_folder(Process.euid, Process.pid) : nil

      # Makes the folder, and removes the sockets of servers that were killed.
      #
      # @return [String, nil] see #path
      def make
        folder = folder_of(Process.euid)
        Dir.mkdir(folder, 0o700) if File.directory?("/proc/self") && !File.exist?(folder)
        path&.tap { Dir.glob("#{folder}/*.control") { |file| File.unlink(file) unless ProcStat.running?(File.basename(file).to_i) } }
      rescue SystemCallError
        nil
      end

      # @param pid [Integer] a master's, as this process sees it
      # @return [String] where its monitor is, if it is there; by the master's own view of files and pids, which may be a container's
      # @raise [SystemCallError] when there is no such process
      def of(pid)
        user = File.read("/proc/#{pid}/status")[/^Uid:\s+\d+\s+(\d+)/, 1].to_i
        name = in_folder(user, ProcStat.inner_pid(pid) || pid)
        [name, "/proc/#{pid}/root#{name}"].find { |path| own?(File.dirname(path), user) && File.socket?(path) } || name
      end

      private

      def folder_of(user) = user.zero? ? ROOTS : "#{PARENT}/fastrack-#{user}"

      def in_folder(user, pid) = "#{folder_of(user)}/#{pid}.control"

      # Whether nobody else can have put anything there.
      def own?(folder, user = Process.euid)
        found = File.lstat(folder)
        found.directory? && found.uid == user && (found.mode & 0o077).zero?
      rescue SystemCallError
        false
      end
    end
  end
end
