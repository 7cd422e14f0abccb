# frozen_string_literal: true

# rackup -s Fastrack -O ConfigFile=config/fastrack.rb
require_relative "config/environment"

run Rails.application
