# frozen_string_literal: true

# Names of a client's that would become keys which are not the client's to set.
RSpec.describe "A11 field names whose env key has another meaning" do
  names = %w[Content_Type content_type CONTENT_TYPE Content_Length content_length Version version VERSION]

  context "in the app" do
    before(:context) { serve(HttpApps.ru(:echo)) }

    names.each do |name|
      it "A11 does not have #{name}" do
        env = env_of("GET / HTTP/1.1", "Host: a", "#{name}: 7", "X-Last: 1")
        expect(env.keys & %w[HTTP_CONTENT_TYPE HTTP_CONTENT_LENGTH HTTP_VERSION CONTENT_LENGTH]).to eq([])
        expect(env["HTTP_X_LAST"]).to eq("1")
      end
    end

    it "A11 does not have them beside the real ones, nor among fields that come twice" do
      fields = ["Content-Type: real/one", "Content-Length: 2", "X-Two: 1", "X-Two: 2", *names.map { |name| "#{name}: forged" }]
      env = env_of("POST / HTTP/1.1", "Host: a", *fields, body: "ab")
      expect(env.keys & %w[HTTP_CONTENT_TYPE HTTP_CONTENT_LENGTH HTTP_VERSION]).to eq([])
      expect(env).to include("CONTENT_TYPE" => "real/one", "CONTENT_LENGTH" => "2", "HTTP_X_TWO" => "1, 2", "SERVER_PROTOCOL" => "HTTP/1.1")
    end

    it "A11 has names that only look like them" do
      env = env_of("GET / HTTP/1.1", "Host: a", "X-Version: 1", "Versions: 2", "Api_Version: 3", "Content_Typ: 4")
      expect(env).to include("HTTP_X_VERSION" => "1", "HTTP_VERSIONS" => "2", "HTTP_API_VERSION" => "3", "HTTP_CONTENT_TYP" => "4")
    end

    it "A11 says the version in SERVER_PROTOCOL alone, and the path in PATH_INFO" do
      %w[1.0 1.1].each do |version|
        env = env_of("GET /a HTTP/#{version}", "Host: a")
        expect([env["SERVER_PROTOCOL"], env.keys & %w[HTTP_VERSION REQUEST_PATH]]).to eq(["HTTP/#{version}", []])
      end
    end
  end

  it "A11 gives no client a 500 by Rack::Lint" do
    serve(%(require "rack"\nrequire "rack/lint"\n#{HttpApps.ru(:clean, middleware: ["Rack::Lint"])}))
    names.each do |name|
      response = talk("GET / HTTP/1.1", "Host: a", "#{name}: 7")
      expect([name, response.status]).to eq([name, 200]), server.log
    end
    expect(server.log).not_to include("Lint")
  end
end
