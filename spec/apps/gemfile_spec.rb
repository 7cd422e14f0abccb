# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/app_new_rails"

# The way in that docs/migrate.md promises: one line of the Gemfile, and no other file.
RSpec.describe "A new Rails app whose Gemfile has rhebok-rs in the place of Puma", skip: AppNewRails.missing do
  system_test = <<~RUBY
    require "test_helper"
    require "net/http"

    #{AppRequirements::HTTP_DRIVER}
    class UpTest < ActionDispatch::SystemTestCase
      driven_by :http

      test "the app is up" do
        visit "/up"
        assert_includes page.html, "served by Fastrack, 200"
      end
    end
  RUBY

  before(:context) do
    @app = AppNewRails.new("--no-skip-system-test")
    @app.bundle { |lines| lines.map { |line| line.sub(/gem "puma".*/, 'gem "rhebok-rs"') } }
    @app.write("test/system/up_test.rb", system_test)
  end

  after(:context) { @app&.remove }

  def up(server) = server.get("/up", { "X-Forwarded-Proto" => "https" }).status

  it "is served by bin/rails server with the three threads of its config/puma.rb, and restarted by bin/rails restart" do
    server = @app.serve("bin/rails", "server", "-p", "0")
    expect([up(server), server.log]).to match([200, /^=> Booting Fastrack$.*^loading from config_file:config\/puma\.rb$.*up to 3 requests at once/m])
    @app.run("bin/rails", "restart")
    eventually(120, -> { server.log }) { server.log.scan("Fastrack is ready").size == 2 }
    expect(up(server)).to eq(200)
  end

  it "is served by bin/rails server in production" do
    server = @app.serve("bin/rails", "server", "-b", "127.0.0.1", env: { "RAILS_ENV" => "production", "PORT" => "0" })
    expect([up(server), server.log]).to match([200, /^=> Booting Fastrack$/])
  end

  it "has green system tests" do
    expect(@app.run("bin/rails", "test:system")).to match(/^1 runs, 2 assertions, 0 failures, 0 errors, 0 skips$/)
  end

  describe "and Puma as well" do
    before(:context) do
      @app.bundle { |lines| lines.map { |line| line.sub(/, path: .*/, "") } << "gem \"puma\"\n" }
      @app.write("test/system/up_test.rb", system_test.sub("served by Fastrack", "served by "))
    end

    it "leaves all of it to Puma, until its name is given" do
      expect(@app.run("bin/rails", "test:system")).to match(/Capybara starting Puma.*^1 runs, 2 assertions, 0 failures, 0 errors, 0 skips$/m)
      expect(@app.run("bin/rails", "runner", "print Rackup::Handler.default")).to end_with("Rackup::Handler::Puma")
    end
  end
end
