# frozen_string_literal: true

# Fastrack's ConfigFile. `fastrack` and `bin/rails server -u fastrack` find it here.

max_workers ENV["WEB_CONCURRENCY"] || 2
max_request_per_child 1000
min_request_per_child 800

# The root and the health check are asked for before workers are forked, so that no client has a slow first request.
warm_up environment == "production"

# Two processes must not share a database connection: the master closes its own, each worker opens a new one.
before_fork do
  ActiveRecord::Base.connection_handler.clear_all_connections!(:all)
end

after_fork do
  ActiveRecord::Base.establish_connection
end
