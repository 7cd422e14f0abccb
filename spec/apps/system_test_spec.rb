# frozen_string_literal: true

require_relative "../support/app_chromium"
require_relative "../support/app_rails"

# Rails' own system tests, with a browser and fixtures in transactions.
RSpec.describe "A system test of a Rails app", skip: AppRails.missing || AppChromium.missing || AppChromium.driver_missing do
  test_case = <<~'RUBY'
    ENV["RAILS_ENV"] = "test"
    require_relative "../config/environment"
    # The app has made its table by now.
    ActiveRecord.maintain_test_schema = false
    require "rails/test_help"
    require "action_dispatch/system_test_case"
    require "selenium/webdriver"
    require "fastrack/capybara"

    Capybara.server = :fastrack, { Silent: true }
    Capybara.default_max_wait_time = 60
    # Debian's Selenium is older than what Rails' own driver calls.
    Capybara.register_driver(:chromium) do |app|
      options = Selenium::WebDriver::Chrome::Options.new(args: FLAGS, binary: CHROMIUM)
      service = Selenium::WebDriver::Service.chrome(path: CHROMEDRIVER)
      Capybara::Selenium::Driver.new(app, browser: :chrome, options: options, service: service)
    end

    # Of the process that forks those of parallel tests.
    FIRST = Fastrack::Server.new(->(_env) { [200, {}, []] }).start

    class ApplicationSystemTestCase < ActionDispatch::SystemTestCase
      self.fixture_paths = [File.expand_path("fixtures", __dir__)]
      fixtures :all
      parallelize(workers: ENV.fetch("PARALLEL", "1").to_i, threshold: 1)
      driven_by :chromium
    end
  RUBY

  tests = <<~'RUBY'
    require_relative "../application_system_test_case"

    class NotesTest < ApplicationSystemTestCase
      2.times do |turn|
        test "a note is added, and no other test sees it #{turn}" do
          Note.create!(text: "written by test #{turn}")
          visit "/notes"
          assert_equal ["from a fixture", "written by test #{turn}"], all("li").map(&:text)
          fill_in "text", with: "typed in a browser"
          click_on "Add"
          assert_text "Added by worker #{Process.pid}"
          # The browser's is in the test's transaction.
          assert_equal 3, Note.count
          assert_text "typed in a browser"
        end
      end

      test "it is served by Fastrack, in threads of this process" do
        visit "/notes"
        server = Capybara.current_session.server
        assert_equal "Fastrack", Net::HTTP.get_response(URI("#{server.base_url}/notes"))["server"]
        helpers = Dir.glob("/proc/self/task/*/comm").count { |file| File.read(file) == "fastrack helper\n" rescue false }
        assert_equal [!ENV.key?("PARALLEL"), ENV.key?("PARALLEL") ? 4 : 8], [FIRST.running?, helpers]
      end
    end
  RUBY

  include_context "with a Rails app"

  before(:context) do
    { "test/application_system_test_case.rb" => test_case, "test/system/notes_test.rb" => tests,
      "test/fixtures/notes.yml" => "one:\n  text: from a fixture\n" }.each { |name, text| Folder.write(@app.path("."), name, text) }
    database = File.read(@app.path("config/database.yml"))
    File.write(@app.path("config/database.yml"), "#{database}\ntest:\n  <<: *default\n")
  end

  def run_tests(environment = {})
    constants = { FLAGS: AppChromium::FLAGS - ["--remote-debugging-port=0"], CHROMIUM: AppChromium.program, CHROMEDRIVER: AppChromium.driver }
    script = constants.map { |name, value| "#{name} = #{value.inspect}\n" }.join
    InProcess.run("#{script}require #{@app.path("test/system/notes_test.rb").inspect}\n",
                  patience: 240, environment: { **@app.environment, "HOME" => @app.path("tmp"), **environment })
  end

  it "passes with a headless Chromium, transactional fixtures included" do
    result = run_tests
    expect(result.output).to match(/^3 runs, \d+ assertions, 0 failures, 0 errors, 0 skips$/)
    expect([result.status.exitstatus, @postgres.query("SELECT text FROM notes").flatten]).to eq([0, ["from a fixture"]])
  end

  it "passes in processes that Rails forks for parallel tests, each with a server of its own" do
    result = run_tests("PARALLEL" => "2")
    expect(result.output).to match(/^3 runs, \d+ assertions, 0 failures, 0 errors, 0 skips$/)
    expect(result.status.exitstatus).to eq(0)
  end
end
