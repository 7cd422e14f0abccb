# frozen_string_literal: true

require "socket"
require_relative "../error"
require_relative "../listener"
require_relative "../log"
require_relative "../text"

module Fastrack
  # A closed listener, in a process that has never had its socket. Its connections may still be kept alive. The attributes are those of
  # Listener.
  FormerListener = Struct.new(:identity, :role, :server_port, :server_name) do
    # @param listener [Listener, FormerListener]
    # @return [String] without spaces, for .parse
    def self.describe(listener) = members.map { |fact| listener.public_send(fact) }.join(",")

    # @return [FormerListener]
    def self.parse(text)
      identity, *facts = text.split(",", members.size)
      role, port, name = facts.map { |fact| fact.freeze unless fact.empty? }
      new(identity.to_i, role&.to_sym, port, name)
    end

    def tcp? = !server_name.nil?

    # The process that had the socket removes its file.
    def remove_file = nil
  end

  # Listeners that were open before this process started: from start_server, systemd or the old master.
  class InheritedListeners
    # Variable of the old master, in the form of SERVER_STARTER_PORT.
    VARIABLE = "FASTRACK_LISTENERS"

    # Variable with former listeners.
    FORMER = "FASTRACK_FORMER_LISTENERS"

    # Stands in the variable for the address of a unix socket, which knows its own path.
    UNIX = "unix"

    # Comes first in the variable if a supervisor has opened the listeners, so that the configuration does not count.
    SUPERVISED = "given "

    class << self
      # Sets the variables for a program that this process becomes.
      #
      # @param listeners [Array<Listener>]
      # @param former [Array<Listener, FormerListener>] see Launcher#former_listeners
      # @param supervised [Boolean] whether a supervisor has opened the listeners
      def pass_on(listeners, former, supervised:)
        pairs = listeners.map { |listener| "#{listener.tcp? ? listener : UNIX}=#{listener.fileno}" }
        ENV[VARIABLE] = "#{SUPERVISED if supervised}#{pairs.join(";")}"
        ENV[FORMER] = former.map { |listener| FormerListener.describe(listener) }.join(" ")
      end

      # Takes listeners over, and removes the variables from the environment, so that programs of the app do not inherit descriptors.
      #
      # @param environment [Hash, ENV]
      # @return [InheritedListeners] empty without inherited listeners
      # @raise [ListenError] when a supervisor's variable is wrong
      def take_over(environment = ENV)
        text = environment.delete(VARIABLE).to_s
        former = environment.delete(FORMER).to_s.split.map { |word| FormerListener.parse(word) }
        listeners = from_old_master(text)
        supervised = listeners.any? && text.start_with?(SUPERVISED)
        return new(listeners, supervised: true, former: former) if supervised

        given = ServerStarter.listeners(environment) + SystemdSockets.take_over(environment)
        given.empty? ? new(listeners, former: former) : new(given, supervised: true, unused: listeners, former: former)
      end

      # @param text [String] as in the variable
      # @return [Array<Listener>] whose socket options are already set
      # @raise [ListenError]
      def described(text) = ServerStarter.parse(text, VARIABLE, tcp_nodelay: nil, tcp_defer_accept: nil)

      # A socket that a supervisor or the old master has opened.
      #
      # @raise [SystemCallError, SocketError, ArgumentError] when the descriptor is no listening socket; some Rubies raise ArgumentError
      def socket(number)
        socket = Socket.for_fd(number)
        # The garbage collector must not close the supervisor's descriptor.
        socket.autoclose = false
        raise SocketError unless socket.getsockopt(:SOCKET, :ACCEPTCONN).bool

        socket
      end

      private

      def from_old_master(text)
        described(text.delete_prefix(SUPERVISED)).map(&:own)
      rescue ListenError => e
        Log.line("#{e.message}; listening again")
        []
      end
    end

    # @param listeners [Array<Listener>]
    # @param supervised [Boolean] whether a supervisor has opened the listeners
    # @param unused [Array<Listener>] listeners that a supervisor's listeners replace
    # @param former [Array<FormerListener>] closed ones of before
    def initialize(listeners, supervised: false, unused: [], former: [])
      @listeners = listeners
      @supervised = supervised
      @unused = unused
      @former = former
    end

    # @return [Array<FormerListener, Listener>] closed ones, whose connections may still be kept alive
    attr_reader :former

    # Whether the listeners are used with any configuration.
    def supervised? = @supervised

    # @param address [Address] port 0 stands for any port
    # @return [Array<Listener>] the listeners at that address, which are taken from the list
    def take(address)
      found, @listeners = @listeners.partition { |listener| at?(listener, address) }
      found
    end

    # @return [Array<Listener>]
    def take_all = @listeners.tap { @listeners = [] }

    # Closes all, in a process that is not to have them.
    def discard = (take_all + @unused).each { |listener| listener.own.close }

    # Closes listeners that were not taken, since they are no longer configured.
    def close_rest
      @former += (take_all + @unused).each(&:drop)
    end

    private

    def at?(listener, address)
      return at_path?(listener, address.file) if address.path

      listener.tcp? && listener.server_name == Listener.authority(address.host) &&
        [0, listener.server_port.to_i].include?(address.port)
    end

    # No client can reach a socket whose file was removed.
    def at_path?(listener, path) = listener.unix_path == path && File.socket?(path)
  end

  # start_server (Perl's Server::Starter) keeps listeners open between deploys, and passes their descriptors in
  # SERVER_STARTER_PORT: `0.0.0.0:80=3;[::1]:80=4;8080=5;/run/app.sock=6`.
  module ServerStarter
    VARIABLE = "SERVER_STARTER_PORT"
    PAIR = /\A(?<address>.+)=(?<number>\d+)\z/.freeze
    HOST_AND_PORT = /\A\[?([^\]]*)\]?:(\d+)\z/.freeze

    module_function

    # @param environment [Hash, ENV]
    # @return [Array<Listener>] empty without start_server
    # @raise [ListenError] when a descriptor is not a listening socket
    def listeners(environment = ENV) = parse(environment.fetch(VARIABLE, ""), VARIABLE)

    # @param text [String] in that form
    # @param variable [String] name of the variable, for the message
    # @param settings see Listener.new
    # @return [Array<Listener>]
    # @raise [ListenError]
    def parse(text, variable, **settings)
      text.b.split(";").map do |pair|
        match = PAIR.match(pair) or raise ListenError, "#{variable}: #{pair.inspect} is not of the form address=descriptor"
        listener(match[:address], InheritedListeners.socket(match[:number].to_i), **settings)
      rescue SystemCallError, SocketError, ArgumentError
        raise ListenError, "#{variable}: descriptor #{match[:number]} for #{Text.utf8(match[:address])} is not a listening socket"
      end
    end

    # The socket tells whether it is a unix socket. The address does not, because a path may look like a port.
    def listener(address, socket, **settings)
      return Listener.new(socket) if socket.local_address.unix?

      host, port = HOST_AND_PORT.match(address)&.captures
      # A bare port means all IPv4 addresses. For port 0 the kernel has chosen one.
      port = (port || address).to_i
      Listener.new(socket, host: host || "0.0.0.0", port: port.zero? ? nil : port, **settings)
    end
    private_class_method :listener
  end

  # Socket activation by systemd (sd_listen_fds(3)): LISTEN_FDS sockets from descriptor 3 on, for the process LISTEN_PID
  # only, with names in LISTEN_FDNAMES (FileDescriptorName= in the socket unit).
  module SystemdSockets
    VARIABLES = %w[LISTEN_FDS LISTEN_PID LISTEN_FDNAMES].freeze

    # Warning where a shell or `fastrack -d` is between systemd and the server.
    NOT_OURS = "systemd's sockets (LISTEN_FDS) are for process %<given>s, and this is process %<own>d, which does not use them: start it " \
               "without a shell, or by `exec`, and not in the background"

    module_function

    # @param environment [Hash, ENV] the variables are removed from it
    # @return [Array<Listener>] empty without a socket unit
    # @raise [ListenError] when a descriptor is not a listening stream socket
    def take_over(environment = ENV)
      given = environment["LISTEN_PID"].to_s
      unless given.to_i == Process.pid
        Log.line(NOT_OURS % { given: Text.utf8(given).inspect, own: Process.pid }, :warn) if environment["LISTEN_FDS"].to_i.positive? && !given.empty?
        return []
      end

      count, _, names = VARIABLES.map { |name| environment.delete(name) }
      names = names.to_s.b.split(":").map { |name| Text.utf8(name) }
      Array.new(count.to_i) { |index| listener(3 + index, names[index]) }
    end

    def listener(number, name)
      socket = InheritedListeners.socket(number)
      raise SocketError unless socket.getsockopt(:SOCKET, :TYPE).int == Socket::SOCK_STREAM

      Listener.new(socket)
    rescue SystemCallError, SocketError, ArgumentError
      raise ListenError, "LISTEN_FDS: descriptor #{number}#{" (#{name})" if name} is not a listening stream socket; " \
                         "the socket unit needs ListenStream= and Accept=no"
    end
    private_class_method :listener
  end
end
