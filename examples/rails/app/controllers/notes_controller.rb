# frozen_string_literal: true

# Lists the notes, with a form to add one.
class NotesController < ActionController::Base
  PAGE = <<~'ERB'
    <!DOCTYPE html>
    <title>Notes</title>
    <p><%= flash[:notice] %></p>
    <ul><% @notes.each do |note| %><li><%= note.text %></li><% end %></ul>
    <%= form_with(url: notes_path) do |form| %><%= form.text_field :text %> <%= form.submit "Add" %><% end %>
  ERB

  def index
    @notes = Note.order(:id)
    respond_to do |format|
      format.html { render inline: PAGE }
      format.json { render json: @notes }
    end
  end

  def create
    Note.create!(text: params.require(:text))
    redirect_to notes_path, notice: "Added by worker #{Process.pid}", status: :see_other
  end

  def source
    send_file __FILE__, type: "text/plain", disposition: "inline"
  end
end
