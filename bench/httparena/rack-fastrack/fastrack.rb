# frozen_string_literal: true

max_workers "auto"
preload_app true
listen "0.0.0.0:8080"
if File.exist?("/certs/server.key")
  certificate = "cert=/certs/server.crt&key=/certs/server.key"
  bind "ssl://0.0.0.0:8081?#{certificate}"
  bind "ssl://0.0.0.0:8443?#{certificate}"
end
