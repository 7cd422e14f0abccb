# frozen_string_literal: true

require_relative "application"

Rails.application.initialize!

# Saves a step in this example. A real app migrates when it is deployed.
load Rails.root.join("db/schema.rb") unless Note.table_exists?
