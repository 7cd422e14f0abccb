# frozen_string_literal: true

# A Rails app in one file, for any Rails from 6.1 on, without a database.

require "logger"
require "rails"
require "action_controller/railtie"

class Smoke < Rails::Application
  config.eager_load = true
  config.secret_key_base = "0123456789abcdef" * 8
  config.logger = Logger.new($stderr)
  config.hosts.clear
  routes.append { root to: "pages#show" }
end

# Its only page.
class PagesController < ActionController::Base
  def show
    render inline: "<h1>Rails <%= Rails.version %></h1>"
  end
end

Rails.application.initialize!
run Rails.application
