# frozen_string_literal: true

# Shows this worker's database connection.
class ConnectionsController < ActionController::Base
  def show
    # Keeps this worker busy, so that other workers get the other requests.
    backend = ActiveRecord::Base.connection.select_value("SELECT pg_backend_pid() FROM pg_sleep(0.02)")
    render json: { worker: Process.pid, master: Process.ppid, backend: backend }
  end
end
