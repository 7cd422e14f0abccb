# frozen_string_literal: true

require_relative "../log"
require_relative "../version"
require_relative "control_endpoints"

module Fastrack
  # What the log says at the start of a server, after its addresses: what runs here, and by which configuration.
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

    # What rackup, Rails and the command have set.
    def environment = ENV["RACK_ENV"] || ENV["RAILS_ENV"] || "no environment"

    def workers(configuration)
      "#{Log.count(configuration.max_workers, "worker")}#{" (auto)" if configuration.auto_workers?} of #{Log.count(configuration.max_threads, "thread")}"
    end

    def monitor(configuration)
      usual = DefaultControlSocket.make if configuration.default_control_socket?
      [configuration.control&.path || usual, configuration.control&.address].compact.then { |places| places.empty? ? "none" : places.join(", ") }
    end
    private_class_method :environment, :workers, :monitor
  end
end
