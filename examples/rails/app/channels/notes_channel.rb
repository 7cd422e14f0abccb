# frozen_string_literal: true

# What is said here, everybody hears, whichever worker their WebSockets are with.
class NotesChannel < ApplicationCable::Channel
  def subscribed
    stream_from "notes"
  end

  def say(data)
    ActionCable.server.broadcast("notes", { text: data["text"], worker: Process.pid })
  end
end
