# frozen_string_literal: true

require "support/http_apps/raising"

RSpec.describe "B-app-error an app that fails" do
  before(:context) { serve(HttpApps.ru(:raising)) }

  def expect_500(path, verb: "GET")
    response = talk("#{verb} #{path} HTTP/1.1", "Host: a", "Connection: close")
    expect(response.status).to eq(500)
    response
  end

  it "B-app-error gives 500, without a word about what went wrong inside" do
    response = expect_500("/standard")
    expect(response.headers["Content-Type"]).to start_with("text/plain")
    expect(response.headers["Content-Length"]).to eq(response.body.bytesize.to_s)
    expect(response.body).not_to match(/trouble|ArgumentError|raising\.rb/)
    expect(expect_500("/standard", verb: "HEAD").body).to eq("")
    expect_worker_alive
  end

  it "B-app-error has class, message and backtrace on rack.errors" do
    expect_500("/standard")
    eventually { server.log.include?("trouble on purpose (ArgumentError)") }
    expect(server.log).to match(/raising\.rb:\d+:in [`'](HttpApps::Raising#)?fail_somewhere'/)
  end

  it "B-app-error writes to the rack.errors that the env has, and flushes it" do
    expect_500("/own-errors")
    eventually { journal.lines.include?("flushed") }
    expect(journal.lines.grep(/errors: .*for my own log/).size).to eq(1)
    expect(server.log).not_to include("for my own log")
  end

  HttpApps::Raising::GRAVE.each do |path, kind|
    it "B-app-error gives 500 for #{kind}, which is no StandardError, and the worker lives" do
      expect_500(path)
      eventually { server.log.include?("grave trouble (#{kind})") }
      expect_worker_alive
    end
  end

  { "/recursion" => "a stack that is too deep", "/throw" => "a throw that nobody catches", "/frozen" => "a FrozenError",
    "/mute" => "an exception whose message fails", "/binary" => "a message that is no text",
    **HttpApps::Raising::BAD_RESPONSES.transform_values { |response| "the response #{response.inspect}" } }.each do |path, what|
    it "B-app-error gives 500 for #{what}, and the worker lives", quiet: path == "/recursion" do
      expect_500(path)
      expect_worker_alive
    end
  end
end
