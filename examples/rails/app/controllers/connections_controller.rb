# frozen_string_literal: true

# What connects this worker to the database.
class ConnectionsController < ActionController::Base
  def show
    # Long enough for other requests to come to other workers.
    backend = ActiveRecord::Base.connection.select_value("SELECT pg_backend_pid() FROM pg_sleep(0.02)")
    render json: { worker: Process.pid, master: Process.ppid, backend: backend }
  end
end
