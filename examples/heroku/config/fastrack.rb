# frozen_string_literal: true

# Fastrack's ConfigFile for Heroku; docs/heroku.md says why. PORT and WEB_CONCURRENCY are read where nothing else is said.

max_workers ENV["WEB_CONCURRENCY"] || 2

# With app.control beside it, the monitor: `heroku ps:exec`, then `fastrack status -P app.pid`.
pid "app.pid"

# The router answers H12 after 30 s and drops the request: end it before, with a backtrace in the log.
request_timeout 25

# When more requests come than the dyno can answer: 503 for those whose clients would leave before their turn.
max_queue_time 10

# 30 s after TERM everything is killed.
drain_delay 2
graceful_timeout 22

# The router closes idle connections after 90 s. It should be the one to do so.
keep_alive_timeout 95

# Memory that an app leaks goes with its worker.
max_request_per_child 10_000
min_request_per_child 8_000

if defined?(ActiveRecord::Base)
  before_fork { ActiveRecord::Base.connection_handler.clear_all_connections!(:all) }
  after_fork { ActiveRecord::Base.establish_connection }
end
