# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/app_new_rails"

RSpec.describe "What is typed to bin/rails server", skip: AppNewRails.missing do
  before(:context) do
    @app = AppNewRails.new
    @app.bundle { |lines| lines.map { |line| line.sub(/gem "puma".*/, 'gem "rhebok-rs"') } }
    @app.write("config/fastrack.rb", <<~RUBY)
      path "no/such/folder/app.sock"
      max_workers ENV["RAILS_ENV"] == "production" ? 2 : 1
      environment "development"
      pid "tmp/pids/of-the-file.pid"
    RUBY
    FileUtils.rm(@app.path("config/puma.rb"))
  end

  after(:context) { @app&.remove }

  it "goes before the ConfigFile: -p, -b, -P and -e" do
    server = @app.serve("bin/rails", "server", "-p", "0", "-b", "127.0.0.1", "-P", "tmp/typed.pid", "-e", "production", env: { "PORT" => "1" })
    expect([server.get("/up", { "X-Forwarded-Proto" => "https" }).status, server.host]).to eq([200, "127.0.0.1"])
    expect([server.log, File.exist?(@app.path("tmp/typed.pid"))]).to match([/^Fastrack is ready Workers:2 /, true])
  end

  it "is not what the environment says, and Rails names no address but the server's" do
    @app.write("config/fastrack.rb", "listen '127.0.0.1:0'")
    server = @app.serve("bin/rails", "server", env: { "PORT" => "1", "HOST" => "localhost", "BINDING" => "127.0.0.1" })
    expect([server.get("/up").status, server.log.scan(%r{http://\S+})]).to eq([200, ["http://127.0.0.1:#{server.port}"]])
  end
end
