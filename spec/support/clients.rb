# frozen_string_literal: true

# What an example has connected, and need not close: that is done at its end, before its servers are told to stop.
module Clients
  OPEN = []

  # @param client [#close] of the example that runs; what a before(:context) makes is closed where it was made
  def self.keep(client) = client.tap { OPEN << client if RSpec.current_example }
  def self.close_all = OPEN.each(&:close).clear

  # A socket that is closed after the block, when one is given.
  def self.connected(socket)
    return keep(socket) unless block_given?

    begin
      yield socket
    ensure
      socket.close
    end
  end
end
