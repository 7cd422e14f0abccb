# frozen_string_literal: true

require "open3"
require "rbconfig"

# What the specs of real apps need besides this repository.
module AppRequirements
  # The lane that is made with all of it: there a missing thing is a failure, not a reason to skip.
  COMPLETE_LANE = "rack3"

  module_function

  def complete? = ENV["FASTRACK_LANE"] == COMPLETE_LANE

  def missing(what, code)
    _, errors, status = Open3.capture3(RbConfig.ruby, "-e", code)
    return if status.success?
    raise "lane #{COMPLETE_LANE} must have #{what}: #{errors}" if complete?

    "no #{what} for Ruby #{RUBY_VERSION}"
  end
end
