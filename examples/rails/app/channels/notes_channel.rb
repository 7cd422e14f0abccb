# frozen_string_literal: true

# Broadcasts to everybody, whichever worker holds their WebSockets.
class NotesChannel < ApplicationCable::Channel
  def subscribed
    stream_from "notes"
  end

  def say(data)
    ActionCable.server.broadcast("notes", { text: data["text"], worker: Process.pid })
  end
end
