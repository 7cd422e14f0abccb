# frozen_string_literal: true

require "rails"
require "active_record/railtie"
require "action_controller/railtie"
require "action_view/railtie"

class Page < Rails::Application
  config.root = File.expand_path("..", __dir__)
  config.load_defaults Rails::VERSION::STRING.to_f
  config.eager_load = true
  # As new apps have it in production. Else files are looked at in each request.
  config.enable_reloading = false
  config.consider_all_requests_local = false
  config.secret_key_base = "0123456789abcdef" * 8
  # No server of the benchmark writes a line for each request.
  config.logger = ActiveSupport::Logger.new(File::NULL)
  config.log_level = :warn
  config.hosts.clear
end
