# frozen_string_literal: true

require "support/http_helpers"

%w[body headers].each do |kind|
  RSpec.describe "A15 the block that the server gives to each of the #{kind}" do
    before(:context) { serve(HttpApps.ru(:keeping)) }

    # The response whose each gave the block away is as any other.
    def expect_response(path)
      response = server.get(path)
      expect([response.status, response.headers["x-now"], response.body]).to eq([200, "yes", "now"])
      expect(response.headers).not_to be_key("x-late")
    end

    it "A15 may be kept, but gets a ThreadError when it is called in another request" do
      expect_response("/#{kind}/keep")
      response = server.get("/#{kind}/call")
      expect(response.body).to eq("ThreadError")
      expect(response.headers).not_to be_key("x-late")
      expect_worker_alive
    end

    it "A15 may be kept, but gets a ThreadError when it is called in another thread" do
      expect_response("/#{kind}/keep")
      expect(server.get("/#{kind}/thread").body).to eq("ThreadError")
      expect_worker_alive
    end

    it "A15 gets a ThreadError in another thread while each runs, too" do
      expect_response("/#{kind}/meanwhile")
      expect(server.get("/#{kind}/seen").body).to eq("ThreadError")
      expect_worker_alive
    end

    it "B-app-error is an app's exception like any other: 500, and the worker lives" do
      expect_response("/#{kind}/keep")
      expect(server.get("/#{kind}/let").status).to eq(500)
      eventually { server.log.include?("(ThreadError)") }
      expect_worker_alive
    end
  end
end
