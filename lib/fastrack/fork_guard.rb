# frozen_string_literal: true

module Fastrack
  # Cuts a process that the app forks off a worker loose from the server's sockets: it must not hold clients' connections
  # open, nor the port when the server is gone. (What the app starts by exec has lost them already.) All of Ruby's forks go
  # through Process._fork, from Ruby 3.1 on.
  module ForkGuard
    # In a worker.
    #
    # @param holders [Array<#close>] what has such sockets: the engine, the listeners, the channel to the master
    def self.install(*holders)
      @holders = holders
      Process.singleton_class.prepend(self)
    end

    # In the child of a fork.
    def self.release
      @holders.each(&:close)
      @holders = []
    end

    # @return [Integer] as fork(2)
    def _fork
      super.tap { |pid| ForkGuard.release if pid.zero? }
    end
  end
end
