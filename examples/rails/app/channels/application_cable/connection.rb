# frozen_string_literal: true

module ApplicationCable
  # A browser's WebSocket. Action Cable takes it over by a full hijack.
  class Connection < ActionCable::Connection::Base
  end
end
