# frozen_string_literal: true

# What connects this worker to the database.
class ConnectionsController < ActionController::Base
  # Connections that are in use when a request begins: those that an earlier one has not given back.
  prepend_before_action { @busy = ActiveRecord::Base.connection_pool.stat[:busy] }

  def show
    # Long enough for other requests to come to other workers.
    backend = ActiveRecord::Base.connection.select_value("SELECT pg_backend_pid() FROM pg_sleep(0.02)")
    render json: { worker: Process.pid, master: Process.ppid, backend: backend, busy: @busy }
  end
end
