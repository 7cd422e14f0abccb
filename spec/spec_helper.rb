# frozen_string_literal: true

require_relative "support/eventually"
require_relative "support/process_table"
require_relative "support/http_response"
require_relative "support/server"
require_relative "support/rackups"
require_relative "support/client_loop"
require_relative "support/portable"

RSpec.configure do |config|
  config.disable_monkey_patching!
  config.warnings = true
  config.order = :defined
  config.include Eventually

  # What these tags keep from running everywhere and always has a reason.
  %i[once alone packaging].each do |tag|
    config.define_derived_metadata(tag) do |metadata|
      raise ArgumentError, "#{metadata[:location]}: #{tag}: takes the reason" if metadata[tag] == true
    end
  end

  # A server started inside an example ends with that example; one started in a
  # before(:context) hook ends with its top-level group. The log is shown while
  # the failed example is still known; then stopping may add a failure of its own.
  config.append_after do |example|
    Server.show_logs if example.exception
    Server.stop_all(:example)
  end

  config.append_after(:context) { Server.stop_all(:context) }
end
