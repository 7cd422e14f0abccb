# frozen_string_literal: true

module ApplicationCable
  # A browser's WebSocket; it comes to this app by a full hijack.
  class Connection < ActionCable::Connection::Base
  end
end
