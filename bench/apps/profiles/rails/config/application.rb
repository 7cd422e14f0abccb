# frozen_string_literal: true

require "rails"
require "active_record/railtie"
require "action_controller/railtie"
require_relative "../../data"

class ProfilesApp < Rails::Application
  config.root = File.expand_path("..", __dir__)
  config.load_defaults Rails::VERSION::STRING.to_f
  config.eager_load = true
  # As new apps have it in production. Else files are looked at in each request.
  config.enable_reloading = false
  config.api_only = true
  config.consider_all_requests_local = false
  config.secret_key_base = "0123456789abcdef" * 8
  config.public_file_server.enabled = true
  config.paths["public"] = ProfileData.write_files
  # No server of the benchmark writes a line for each request.
  config.logger = ActiveSupport::Logger.new(File::NULL)
  config.log_level = :warn
  config.hosts.clear
  config.middleware.use Rack::Deflater, include: %w[application/json]
end
