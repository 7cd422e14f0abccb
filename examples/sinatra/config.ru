# frozen_string_literal: true

# A notebook with sessions, a form and uploads: bin/serve examples/sinatra/config.ru
#
# Needs the gems sinatra and rack-session (Debian: ruby-sinatra).

require "digest"
require "securerandom"
require "sinatra/base"

# Notes are kept in the visitor's cookie, so any worker can answer.
class Notebook < Sinatra::Base
  # The app is loaded in the master, so all workers share this secret. Set it to keep cookies valid across restarts.
  set :session_secret, ENV.fetch("SESSION_SECRET") { SecureRandom.hex(64) }
  enable :sessions
  # CSRF protection: forms carry a token.
  use Rack::Protection::AuthenticityToken

  get "/" do
    session[:visits] = session.fetch(:visits, 0) + 1
    erb :notebook
  end

  post "/notes" do
    session[:notes] = notes + [params.fetch("text")]
    redirect to("/"), 303
  end

  post "/files" do
    file = params.fetch("file")
    content_type :text
    digest = Digest::SHA256.file(file[:tempfile].path).hexdigest
    "#{file[:filename]} #{File.size(file[:tempfile].path)} #{digest} by #{Process.pid}\n"
  end

  get "/source" do
    send_file __FILE__, type: :text
  end

  helpers do
    def notes
      session.fetch(:notes, [])
    end

    def token_field
      %(<input type="hidden" name="authenticity_token" value="#{Rack::Protection::AuthenticityToken.token(session)}">)
    end
  end

  template :notebook do
    <<~'ERB'
      <!DOCTYPE html>
      <meta charset="utf-8">
      <title>Notebook</title>
      <h1>Notebook</h1>
      <p>Visit <%= session[:visits] %>, served by worker <%= Process.pid %></p>
      <ul><% notes.each do |note| %><li><%= Rack::Utils.escape_html(note) %></li><% end %></ul>
      <form method="post" action="/notes"><%= token_field %><input name="text"> <button>Add</button></form>
      <form method="post" action="/files" enctype="multipart/form-data">
        <%= token_field %><input type="file" name="file"> <button>Upload</button>
      </form>
    ERB
  end
end

run Notebook
