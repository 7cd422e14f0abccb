# frozen_string_literal: true

require_relative "application"

Rails.application.initialize!

# So that the example needs no step of its own; a real app migrates when it is deployed.
load Rails.root.join("db/schema.rb") unless Note.table_exists?
