# frozen_string_literal: true

require "socket"

module Fastrack
  module Proxy
    # Orders for the proxy, over a unix socket. The master does not wait for the proxy: what the proxy has not taken stays here. The
    # descriptors of an order go with its first byte (SCM_RIGHTS, unix(7)).
    class Outbox
      # @attr text [String] the rest of a line
      # @attr descriptors [Array<IO>] copies, closed once they are sent
      Order = Struct.new(:text, :descriptors)
      private_constant :Order

      # @param socket [UNIXSocket]
      def initialize(socket)
        @socket = socket
        @orders = []
      end

      # @param line [String]
      # @param descriptors [Array<#fileno>]
      def add(line, descriptors = [])
        # Copies, because the caller may close the originals before the order is sent.
        @orders << Order.new(line.b, descriptors.map { |one| IO.for_fd(one.fileno, autoclose: false).dup })
        flush
      end

      # Sends what the proxy takes.
      #
      # @return [Boolean] whether some of it is left
      def flush
        until @orders.empty?
          sent = send_first
          return true if sent == :wait_writable

          @orders.shift if @orders.first.text.empty?
        end
        false
      rescue SystemCallError, IOError
        # The process has ended.
        clear
        false
      end

      # @return [Array<IO>]
      def descriptors = [@socket, *@orders.flat_map(&:descriptors)].reject(&:closed?)

      def close
        clear
        @socket.close
      end

      private

      def clear
        @orders.flat_map(&:descriptors).each(&:close)
        @orders.clear
      end

      def send_first
        order = @orders.first
        rights = order.descriptors.any? ? [Socket::AncillaryData.unix_rights(*order.descriptors)] : []
        sent = @socket.sendmsg_nonblock(order.text, 0, nil, *rights, exception: false)
        return sent if sent == :wait_writable

        order.text = order.text.byteslice(sent..)
        order.descriptors.each(&:close).clear
        sent
      end
    end
  end
end
