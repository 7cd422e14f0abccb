# frozen_string_literal: true

# Works with Unicorn and Fastrack: fastrack -c config/unicorn.rb -E production

root = File.expand_path("..", __dir__)

worker_processes Integer(ENV.fetch("WEB_CONCURRENCY", 4))
preload_app true

# Seconds in the app per request.
timeout 30

listen File.join(root, "tmp/app.sock"), backlog: 2048
listen "127.0.0.1:8080", tcp_nodelay: true

working_directory root
pid File.join(root, "tmp/app.pid")

before_fork do |_server, _worker|
  # Two processes must not share what the app opened at boot.
  ActiveRecord::Base.connection_handler.clear_all_connections!(:all) if defined?(ActiveRecord::Base)
end

after_fork do |server, worker|
  ActiveRecord::Base.establish_connection if defined?(ActiveRecord::Base)

  # A port per worker, for debugging.
  server.listen("127.0.0.1:#{9293 + worker.nr}", tries: -1, delay: 5)
end
