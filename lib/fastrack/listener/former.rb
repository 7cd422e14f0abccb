# frozen_string_literal: true

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
end
