# frozen_string_literal: true

require "cgi"
require_relative "../support/app_chromium"
require_relative "../support/app_rails"

RSpec.describe "A page of a Rails app that listens by ActionCable, in Chromium", skip: AppRails.missing || AppChromium.missing do
  # A page that says something as soon as it is subscribed, shows what it hears, and asks for /shown with what it shows.
  page = <<~HTML
    <!DOCTYPE html>
    <meta charset="utf-8">
    <p id="heard"></p>
    <script src="/actioncable.js"></script>
    <script>
      const heard = document.getElementById("heard")
      const consumer = ActionCable.createConsumer("/cable")
      const notes = consumer.subscriptions.create("NotesChannel", {
        connected() { notes.perform("say", { text: "Tea & <scones>, déjà vu" }) },
        received(note) {
          heard.textContent += note.text
          fetch("/shown?text=" + encodeURIComponent(heard.innerHTML))
        }
      })
    </script>
  HTML

  include_context "with a Rails app"

  before(:context) do
    @server = @app.serve(options: { MaxWorkers: 2 })
    gem = Gem::Specification.find_by_name("actioncable").gem_dir
    FileUtils.cp(File.join(gem, "app/assets/javascripts/actioncable.js"), @app.path("public/actioncable.js"))
    File.write(@app.path("public/page.html"), page)
  end

  # What the page has shown last, as HTML.
  def shown
    text = @server.log.scan(%r{Started GET "/shown\?text=([^"&]*)}).flatten.last
    text && CGI.unescape(text)
  end

  it "C5 shows what it said itself, and what another client says, while its WebSocket has no worker to itself" do
    chromium = AppChromium.new(@server.url("/page.html"))
    eventually(60, -> { "#{chromium.log}\n#{@server.log}" }) { shown == "Tea &amp; &lt;scones&gt;, déjà vu" }
    expect(@server.get("/notes").status).to eq(200)
    AppRails::Notes.new(@server).say("; more")
    eventually(20, -> { "#{shown.inspect}\n#{@server.log}" }) { shown == "Tea &amp; &lt;scones&gt;, déjà vu; more" }
  ensure
    chromium&.close
  end
end
