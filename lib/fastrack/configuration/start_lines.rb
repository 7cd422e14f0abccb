# frozen_string_literal: true

require_relative "../log"
require_relative "../version"
require_relative "control_endpoints"

module Fastrack
  # Lines of the log at the start of a server, after the addresses: version, Ruby, environment, workers, configuration and monitor.
  module StartLines
    module_function

    # @param configuration [Configuration]
    # @return [Array<String>]
    def for(configuration)
      ["Fastrack #{VERSION}, #{ruby}, #{environment}: #{workers(configuration)}", "* ConfigFile: #{configuration.file || "none"}",
       "* Monitor: #{monitor(configuration)}"]
    end

    def ruby
      yjit = defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled?
      "#{RUBY_ENGINE} #{RUBY_VERSION}#{" with YJIT" if yjit}"
    end

    # The environment that rackup, Rails or the command have set.
    def environment = ENV["RACK_ENV"] || ENV["RAILS_ENV"] || "no environment"

    def workers(configuration)
      "#{Log.count(configuration.max_workers, "worker")}#{" (auto)" if configuration.auto_workers?} of #{Log.count(configuration.max_threads, "thread")}" \
        "#{" (as Rails has them under Puma; max_threads sets the number)" if configuration.rails_threads?}"
    end

    def monitor(configuration)
      usual = DefaultControlSocket.make if configuration.default_control_socket?
      [configuration.control&.path || usual, configuration.control&.address].compact.then { |places| places.empty? ? "none" : places.join(", ") }
    end
    private_class_method :environment, :workers, :monitor
  end
end
