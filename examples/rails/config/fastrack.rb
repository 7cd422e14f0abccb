# frozen_string_literal: true

# Fastrack's ConfigFile: rackup -s Fastrack -O ConfigFile=config/fastrack.rb

max_workers ENV["WEB_CONCURRENCY"] || 2
max_request_per_child 1000
min_request_per_child 800

# A connection to the database must not be used by two processes: what the boot of the app has opened in the master is
# closed there, and each worker opens its own.
before_fork do
  ActiveRecord::Base.connection_handler.clear_all_connections!(:all)
end

after_fork do
  ActiveRecord::Base.establish_connection
end
