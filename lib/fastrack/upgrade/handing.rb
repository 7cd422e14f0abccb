# frozen_string_literal: true

require "socket"
require_relative "../configuration/plain_data"
require_relative "../error"
require_relative "../text"
require_relative "../worker/control_channel"

module Fastrack
  # The socket by which generation 0 hands its settings to the master, once, and gets what the master has made of them: descriptors of
  # listeners and logs. A message is its length and plain data (PlainData).
  class Handing
    # Most bytes of a message.
    MOST = 1 << 20

    # Most bytes that the master reads at once.
    PIECE = 16_384

    # Most tries to send while the system lacks memory, in about a second, for which the master does nothing else.
    TRIES = 50

    HEAD = 4
    private_constant :TRIES, :HEAD

    # @return [Array(Handing, Handing)] the master's, and that of generation 0
    def self.pair = UNIXSocket.pair(:STREAM).map { |socket| new(socket) }

    # @param socket [UNIXSocket]
    def initialize(socket)
      @socket = socket
      @bytes = +"".b
    end

    # @return [IO] for IO.select
    def to_io = @socket

    # Sends a message.
    #
    # @param data see PlainData
    # @param descriptors [Array<IO>] copies of which the other process gets (SCM_RIGHTS, unix(7))
    # @raise [SystemCallError, Error]
    def put(data, descriptors = [])
      bytes = PlainData.dump(data)
      bytes = [bytes.bytesize].pack("N") << bytes
      rights = descriptors.any? ? [Socket::AncillaryData.unix_rights(*descriptors)] : []
      until bytes.empty?
        sent = try_again(TRIES) { @socket.sendmsg(bytes, 0, nil, *rights) }
        bytes = bytes.byteslice(sent..)
        # Descriptors come with the first bytes.
        rights = []
      end
    end

    # Waits for a message.
    #
    # @return [Array(Object, Array<IO>), nil] the data, and the descriptors; nil when the other process has closed its end
    # @raise [Error]
    def take
      descriptors = []
      until (data = whole)
        text, _, _, *control = try_again { @socket.recvmsg(PIECE, scm_rights: true) }
        descriptors.concat(control.flat_map { |one| one.unix_rights || [] })
        return if text.to_s.empty?

        @bytes << text
      end
      [data.first, descriptors]
    rescue SystemCallError, IOError
      nil
    end

    # Reads a part of a message of generation 0, without waiting. Its texts reach the log, so they have nothing that is not printable.
    #
    # @return [Hash, nil] the data once it is whole
    # @raise [EOFError] when the other process has closed its end
    # @raise [Error] when the message is too long, or no message
    def read
      @bytes << @socket.read_nonblock(PIECE)
      found = whole or return
      raise Error, "the data is broken" unless found.first.is_a?(Hash)

      shown(found.first)
    rescue IO::WaitReadable, Errno::EINTR
      nil
    rescue Errno::ENOMEM, Errno::ENOBUFS
      # The other process still runs. The pause keeps IO.select from reporting the socket again at once.
      sleep ControlChannel::MEMORY_PAUSE
      nil
    rescue SystemCallError, IOError
      raise EOFError, "it has ended"
    end

    def closed? = @socket.closed?

    def close = @socket.close

    private

    # Calls the block again, after a pause, while the system lacks memory.
    #
    # @param most [Integer] calls until the error is raised
    def try_again(most = Float::INFINITY)
      calls ||= 0
      yield
    rescue Errno::ENOMEM, Errno::ENOBUFS
      raise if (calls += 1) >= most

      sleep ControlChannel::MEMORY_PAUSE
      retry
    end

    def shown(data)
      case data
      when String then data.scrub("?").match?(Text::UNPRINTABLE) ? Text.printable(data) : data
      when Array then data.map { |one| shown(one) }
      when Hash then data.to_h { |key, value| [shown(key), shown(value)] }
      else data
      end
    end

    # @return [Array, nil] with the data
    def whole
      size = @bytes.unpack1("N") or return
      raise Error, "a message of #{size} bytes is too long" if size > MOST
      return if @bytes.bytesize < HEAD + size

      [PlainData.load(@bytes.byteslice(HEAD, size))]
    end
  end
end
