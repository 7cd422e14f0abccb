# frozen_string_literal: true

require_relative "client_loop"

# Clients that ask for one path on connections that they keep, with pauses, of anything that they can connect to.
class KeptLoop < ClientLoop
  def self.run(server, **keywords, &block) = new(server, **keywords).tap { |loop| loop.run(&block) }

  def initialize(server, clients: 6, path: "/pid", pause: 0.01)
    super(server, [path] * clients, true, pause)
  end

  private

  def remember_place; end

  def connect
    @lock.synchronize { @connections += 1 }
    @server.connect
  end
end
