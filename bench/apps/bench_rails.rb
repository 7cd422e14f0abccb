# frozen_string_literal: true

require "rails"
require "active_record/railtie"
require "action_controller/railtie"

# Where PostgreSQL is, libpq's environment variables say. A connection for each thread of a worker.
ENV["DATABASE_URL"] = "postgresql:///postgres?pool=5"

# The settings of the benchmark's Rails apps, which are those of new apps in production. Controllers and models are defined after initialize!.
class BenchRails < Rails::Application
  config.root = __dir__
  config.load_defaults Rails::VERSION::STRING.to_f
  config.eager_load = true
  # Else files are looked at in each request.
  config.enable_reloading = false
  config.consider_all_requests_local = false
  config.secret_key_base = "0123456789abcdef" * 8
  # No server of the benchmark writes a line for each request.
  config.logger = ActiveSupport::Logger.new(File::NULL)
  config.log_level = :warn
  config.hosts.clear
end
