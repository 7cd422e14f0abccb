# frozen_string_literal: true

# A prefork web server for Rack apps: a process side in Ruby, which never touches a request, and a native extension that
# serves them, loaded when a server starts (fastrack/native).
module Fastrack
  # For tests and tools; servers in production do not load it.
  autoload :Server, File.expand_path("fastrack/in_process/server", __dir__)
end

require_relative "fastrack/version"
require_relative "fastrack/error"
require_relative "fastrack/handler"
require_relative "fastrack/upgrade/start_command"

Fastrack::StartCommand.capture
