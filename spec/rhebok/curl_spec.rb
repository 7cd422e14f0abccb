# frozen_string_literal: true

require "support/http_helpers"
require "support/http_curl"

# What Rhebok's own spec_06 checks with curl, of Fastrack.
RSpec.describe "A18 Rhebok's spec_06: curl" do
  def curl(path, *arguments)
    HttpCurl.new(*arguments, server.url(path))
  end

  context "with an upload, to the option ChunkedTransfer" do
    before(:context) { serve(HttpApps.ru(:rhebok), options: { "ChunkedTransfer" => 1 }) }

    upload = ["-X", "POST", "-T", __FILE__, "-H", "Content-Type: text/plain", "-H", "Transfer-Encoding: chunked"]
    size = File.size(__FILE__)

    def seen(curl)
      Marshal.load(curl.body) # rubocop:disable Security/MarshalLoad -- written by the app
    end

    it "A18 takes chunks after 100 Continue, and answers in chunks" do
      curl = curl("/remove_length", *upload, "-H", "Expect: 100-continue")
      expect(curl.request).to include("Transfer-Encoding" => "chunked", "Expect" => "100-continue")
      expect(curl.statuses).to eq([100, 200])
      expect(curl.response).to include("Transfer-Encoding" => "chunked")
      expect(curl.response).not_to have_key("Connection")
      expect(seen(curl).keys.grep(/TRANSFER.ENCODING/i)).to be_empty
      expect(seen(curl)).to include("CONTENT_LENGTH" => size.to_s, "test.postdata" => File.binread(__FILE__))
    end

    it "A18 takes an HTTP/1.0 upload, and answers without chunks or 100 Continue" do
      curl = curl("/remove_length", "--http1.0", "-X", "POST", "--data-binary", "@#{__FILE__}", "-H", "Content-Type: text/plain")
      expect(curl.request).not_to have_key("Expect")
      expect(curl.statuses).to eq([200])
      expect(curl.response).not_to have_key("Transfer-Encoding")
      expect(curl.response).to include("Connection" => "close")
      expect(seen(curl)).to include("CONTENT_LENGTH" => size.to_s, "test.postdata" => File.binread(__FILE__))
    end
  end

  context "with bodies of every kind, to the option ChunkedTransfer" do
    before(:context) { serve(HttpApps.ru(:responder), options: { "ChunkedTransfer" => 1 }) }

    {
      "mixed-array" => "ContentAgain0", "empty" => "", "each-mixed" => "ContentAgain0", "each-empty" => ""
    }.each do |name, body|
      it "A18 sends #{name} to HTTP/1.1 and to HTTP/1.0" do
        expect(curl("/body/#{name}").body).to eq(body)
        expect(curl("/body/#{name}", "--http1.0").body).to eq(body)
      end
    end
  end
end
