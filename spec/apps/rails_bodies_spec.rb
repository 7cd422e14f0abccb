# frozen_string_literal: true

require "json"
require_relative "../support/app_rails_bodies"

RSpec.describe "The bodies of a Rails app", skip: AppRails.missing do
  include_context "with a Rails app"

  video = Random.new(7).bytes(3_000_000)

  before(:context) do
    AppRailsBodies.add(@app, video)
    @server = @app.serve(options: { MaxWorkers: 1 })
    @server.await_workers(1)
  end

  def completed = @server.log.lines.grep(/\A#{AppRails::COMPLETED} \d+\n\z/).size

  # Rails' Response::Buffer always has to_ary, and answers with what the action streams; Rack::BodyProxy passes that on.
  {
    "an Array" => "array", "an Enumerator, as for a CSV" => "generated", "an Enumerator of an Array" => "enumerator", "a lazy one" => "lazy",
    "a body with an each of its own" => "own", "one with a Content-Length" => "sized", "send_data" => "data",
    "send_file with a Pathname" => "path", "send_stream (ActionController::Live)" => "streamed"
  }.each do |what, action|
    it "D17 are sent: #{what}" do
      before = completed
      responses = Array.new(2) { @server.get("/bodies/#{action}") }
      expect(responses.map { |one| [one.status, one.body] }).to all(eq([200, AppRailsBodies::LINES]))
      expect(@server.request("HEAD", "/bodies/#{action}").status).to eq(200)
      # Each request has come to its end.
      eventually(10, -> { "#{completed} of #{before + 3}" }) { completed == before + 3 }
      expect(@server.log).not_to match(/TypeError|LocalJumpError/)
    end
  end

  it "D17 are sent as they come: an Enumerator's first line before the others are there" do
    @server.connect do |socket|
      socket.write("GET /bodies/generated?file=go HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
      bytes = +""
      bytes << socket.readpartial(4096) until bytes.include?("one\n")
      expect(bytes).not_to include("two")
      File.write(@app.path("tmp/go"), "")
      bytes << socket.read
      expect(HttpResponse.parse(bytes).body).to eq(AppRailsBodies::LINES)
    end
  end

  describe "of Active Storage" do
    before(:context) { @paths = JSON.parse(@server.get("/bodies/attach").body) }

    # Redirect mode ends at the URL of the disk service.
    def stored(mode, range = nil)
      headers = range ? { "Range" => range } : {}
      response = @server.get(@paths.fetch(mode), headers)
      return response unless mode == "redirect"

      expect(response.status).to eq(302)
      @server.get(response.headers["Location"][%r{\Ahttp://localhost(/.*)\z}, 1], headers)
    end

    %w[redirect proxy].each do |mode|
      it "D17 are whole files (#{mode})" do
        response = stored(mode)
        expect([response.status, response.headers["Content-Type"], response.body == video]).to eq([200, "video/mp4", true])
      end

      { "bytes=0-" => 0..2_999_999, "bytes=100-199" => 100..199, "bytes=-5" => 2_999_995..2_999_999 }.each do |range, part|
        it "D17 are parts: #{range} (#{mode}), as each video tag asks for" do
          response = stored(mode, range)
          expect([response.status, response.headers["Content-Range"]]).to eq([206, "bytes #{part.begin}-#{part.end}/3000000"])
          # Proxy mode is ActionController::Live.
          expect(response.headers["Content-Length"]).to eq(mode == "proxy" ? nil : part.size.to_s)
          expect(response.body == video[part]).to be(true)
        end
      end

      it "D17 are refused beyond the end (#{mode})" do
        expect(stored(mode, "bytes=3000000-").status).to eq(416)
      end
    end

    it "D17 are several parts at once (redirect)" do
      response = stored("redirect", "bytes=0-9,20-29")
      expect([response.status, response.body.b]).to match([206, include(video[0..9]).and(include(video[20..29]))])
    end
  end
end
