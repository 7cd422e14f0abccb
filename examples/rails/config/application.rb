# frozen_string_literal: true

require "rails"
require "active_record/railtie"
require "action_controller/railtie"
require "action_view/railtie"
require "action_cable/engine"

# A small Rails app with a table of notes in PostgreSQL.
class Notes < Rails::Application
  config.load_defaults 7.1
  # Load everything in the master, so that workers share it.
  config.eager_load = true
  config.enable_reloading = !Rails.env.production?
  config.consider_all_requests_local = Rails.env.development?
  config.public_file_server.enabled = true
  config.secret_key_base = ENV.fetch("SECRET_KEY_BASE") { SecureRandom.hex(64) }
  config.logger = ActiveSupport::TaggedLogging.new(ActiveSupport::Logger.new($stdout))
  config.log_tags = [:request_id]
  config.hosts.clear
  # Accept WebSockets from any origin: this is an example.
  config.action_cable.disable_request_forgery_protection = true
end
