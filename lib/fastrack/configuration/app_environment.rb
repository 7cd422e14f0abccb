# frozen_string_literal: true

require_relative "../process/start_command"

module Fastrack
  # The app's environment: production, development and so on. Rack apps read its name from RACK_ENV, Rails apps from RAILS_ENV, and
  # configuration files from either. So both variables are set, before a ConfigFile is read.
  module AppEnvironment
    VARIABLES = %w[RACK_ENV RAILS_ENV].freeze

    # Used where nobody has named an environment.
    DEFAULT = "development"

    # rackup's names for sets of middleware. No app has such an environment, so RAILS_ENV is left alone.
    MIDDLEWARE_SETS = %w[deployment none].freeze

    class << self
      # @param variables [Hash, ENV]
      # @return [String]
      def name(variables = ENV) = named(variables) || DEFAULT

      # Sets both variables.
      #
      # @param typed [String, nil] name from the command line, which outranks the variables
      # @param default [String, nil] used where neither variable is set; nil: both stay unset
      # @param variables [Hash, ENV]
      def settle(typed = nil, default: nil, variables: ENV)
        name = typed || named(variables) || default or return
        return variables["RACK_ENV"] = name if MIDDLEWARE_SETS.include?(name)

        missing = VARIABLES.select { |variable| variables[variable].to_s.empty? }
        (typed ? VARIABLES : missing).each { |variable| variables[variable] = name }
        derived.concat(missing) if variables.equal?(ENV)
      end

      # Sets both variables under rackup, which itself sets RACK_ENV to `development` where its user has set none. The app is already
      # loaded, so a RAILS_ENV that was set stays.
      def settle_rackup
        default = ENV["RACK_ENV"] == DEFAULT && !development_chosen?("RACK_ENV")
        ENV.delete("RACK_ENV") if default && !ENV["RAILS_ENV"].to_s.empty?
        settle
      end

      # Applies Puma's word `environment`, which outranks RACK_ENV. A RAILS_ENV that the user has set stays.
      def override(name, variables = ENV)
        stays = !variables["RAILS_ENV"].to_s.empty? && !(variables.equal?(ENV) && derived.include?("RAILS_ENV"))
        variables["RACK_ENV"] = name
        return if stays || MIDDLEWARE_SETS.include?(name)

        variables["RAILS_ENV"] = name
        derived << "RAILS_ENV" if variables.equal?(ENV)
      end

      # @param directory [String]
      # @return [Boolean] whether there is a Rails app, which may not be loaded yet
      def rails?(directory)
        file = File.join(directory, "config", "application.rb")
        File.file?(file) && File.binread(file).include?("Rails::Application")
      rescue SystemCallError
        false
      end

      # Whether the user has chosen `development`, and not rackup. Under `bundle exec` only the command tells.
      #
      # @param names [Array<String>] variables in which the user may have named it
      # @return [Boolean]
      def development_chosen?(*names)
        start = StartCommand.current
        start.command.any? { |word| word.end_with?(DEFAULT) } || (start.intact? && start.environment.values_at(*names).any?)
      end

      private

      def named(variables)
        names = variables.values_at(*VARIABLES).reject { |name| name.to_s.empty? }
        (names - MIDDLEWARE_SETS).first || names.first
      end

      # Variables that the user has not set.
      def derived = @derived ||= []
    end
  end
end
