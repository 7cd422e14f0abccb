# frozen_string_literal: true

require_relative "../support/app_requirements"

# What frameworks stream and send, each by its own kind of body.
SINATRA_BODIES = <<~'RUBY'
  require "sinatra/base"
  class Bodies < Sinatra::Base
    set :host_authorization, permitted_hosts: []
    get("/text") { "one\ntwo\n" }
    get("/stream") { stream { |out| out << "one\n"; out << "two\n" } }
    get("/enumerator") { body(%W[one\n two\n].each) }
    get("/lazy") { body(%W[one\n two\n].lazy.map(&:itself)) }
    get("/file") { send_file(File.expand_path("lines"), type: :text) }
    get("/sized") { [200, { "content-length" => "8" }, %W[one\n two\n].each] }
  end
  run Bodies
RUBY

RODA_BODIES = <<~'RUBY'
  require "roda"
  class Bodies < Roda
    plugin :streaming
    plugin :sinatra_helpers
    plugin :render, engine: "erb"
    plugin :chunked
    route do |r|
      r.get("text") { "one\ntwo\n" }
      r.get("stream") { stream { |out| out << "one\n" << "two\n" } }
      r.get("lazy") { r.halt([200, {}, %W[one\n two\n].lazy.map(&:itself)]) }
      r.get("file") { send_file(File.expand_path("lines"), type: "text/plain") }
      r.get("chunked") { chunked(inline: "one\ntwo\n", layout: { inline: "<%= yield %>" }) }
    end
  end
  run Bodies.freeze.app
RUBY

# The lane that is complete has none.
RODA_MISSING = AppRequirements.complete? ? "no Roda" : AppRequirements.missing("Roda", 'require "roda"; require "tilt"')

{
  "Sinatra" => [SINATRA_BODIES, AppRequirements.missing("Sinatra", 'require "sinatra/base"'), %w[text stream enumerator lazy file sized]],
  "Roda" => [RODA_BODIES, RODA_MISSING, %w[text stream lazy file chunked]]
}.each do |framework, (ru, missing, paths)|
  RSpec.describe "The bodies of a #{framework} app", skip: missing do
    before(:context) { @server = Server.start(ru: ru, options: { MaxWorkers: 1 }, files: { "lines" => "one\ntwo\n" }) }

    paths.each do |path|
      it "D17 are sent: #{path}" do
        responses = Array.new(2) { @server.get("/#{path}") }
        expect(responses.map { |one| [one.status, one.body] }).to all(eq([200, "one\ntwo\n"]))
        expect(@server.request("HEAD", "/#{path}").body).to eq("")
      end
    end

    it "D17 are parts of files, too" do
      response = @server.get("/file", { "Range" => "bytes=4-6" })
      expect([response.status, response.headers["Content-Length"], response.body]).to eq([206, "3", "two"])
    end
  end
end
