# frozen_string_literal: true

host "0.0.0.0"
max_workers ENV["WEB_CONCURRENCY"] || 2
control_listen 9394
# As in prometheus.yml. Make one of your own.
control_token "change-this-token-0"
