# frozen_string_literal: true

# A prefork web server for Rack apps: a process side in Ruby, which never touches a request, and a native extension that
# serves them, loaded when a server starts (fastrack/native).
module Fastrack
  # For tests and tools; servers in production do not load it.
  autoload :Server, File.expand_path("fastrack/in_process/server", __dir__)
  autoload :Stats, File.expand_path("fastrack/master/stats", __dir__)
  # For apps that have ActiveSupport.
  autoload :Notifications, File.expand_path("fastrack/rack/notifications", __dir__)

  class << self
    # What the server of this process is doing: in the master, in workers and in hooks.
    #
    # @return [Hash, nil] see docs/logs-and-stats.md; nil where no server of its own runs
    def stats
      Stats.new(*scoreboard).to_h if scoreboard
    end

    # The app, or a library that it loads, does not bear that workers are forked from one that has served: see docs/memory.md. In the
    # master, or in any worker.
    def forbid_refork!
      return if @refork_forbidden

      @refork_forbidden = Text.utf8(caller(1, 1).first.b[/\A.*?:\d+/])
      @refork_forbids&.call
    end

    # @!visibility private
    # @return [String, nil] where it was forbidden in this process, or in the master before the fork
    attr_reader :refork_forbidden

    # @!visibility private
    # @return [#call] tells the master
    attr_writer :refork_forbids

    # @!visibility private
    # @return [Array(Scoreboard, Integer), nil] the server's, and the pid of its master
    attr_accessor :scoreboard
  end
end

require_relative "fastrack/version"
require_relative "fastrack/error"
require_relative "fastrack/handler"
require_relative "fastrack/upgrade/start_command"

Fastrack::StartCommand.capture
