# frozen_string_literal: true

# The profiles of support/profiles.rb on Rails.
require_relative "profiles/rails/config/application"

ProfilesApp.initialize!

run ProfilesApp
