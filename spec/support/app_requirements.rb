# frozen_string_literal: true

require "open3"
require "rbconfig"

# What the specs of real apps need besides this repository.
module AppRequirements
  # The lane that is made with all of it: there a missing thing is a failure, not a reason to skip.
  COMPLETE_LANE = "rack3"

  # A driver that needs a server, as those of browsers do: Debian's Selenium is older than what Rails' own calls.
  HTTP_DRIVER = <<~'RUBY'
    class HTTPDriver < Capybara::Driver::Base
      attr_reader :html

      def needs_server? = true
      def reset! = nil

      def visit(url)
        response = Net::HTTP.get_response(URI(url))
        @html = "#{response.body}\nserved by #{response["server"]}, #{response.code}"
      end
    end
    Capybara.register_driver(:http) { HTTPDriver.new }
  RUBY

  module_function

  def complete? = ENV["FASTRACK_LANE"] == COMPLETE_LANE

  def missing(what, code)
    _, errors, status = Open3.capture3(RbConfig.ruby, "-e", code)
    return if status.success?
    raise "lane #{COMPLETE_LANE} must have #{what}: #{errors}" if complete?

    "no #{what} for Ruby #{RUBY_VERSION}"
  end
end
