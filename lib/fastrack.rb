# frozen_string_literal: true

# A prefork web server for Rack apps: a thin process side in Ruby (this folder), which never touches a request, and a
# native loop that serves them, loaded when a server is started (fastrack/native).
module Fastrack
end

require_relative "fastrack/version"
require_relative "fastrack/error"
require_relative "fastrack/handler"
require_relative "fastrack/upgrade/start_command"

Fastrack::StartContext.capture
