# frozen_string_literal: true

max_workers "auto"
max_threads 4
preload_app true
listen "0.0.0.0:8080"
