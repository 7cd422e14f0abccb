# frozen_string_literal: true

module Fastrack
  class WarmUp
    # What a Rails app says of its clients and pages.
    module RailsApp
      # Names of Rails' own routes.
      USUAL = %i[root rails_health_check].freeze

      module_function

      def app = (::Rails.application if defined?(::Rails.application))

      # @return [Array<String>] paths that have no effects: the root, and the health check
      def paths
        return ["/"] unless app

        app.reload_routes_unless_loaded if app.respond_to?(:reload_routes_unless_loaded)
        names = USUAL.select { |name| app.routes.named_routes.key?(name) }
        names.map { |name| app.routes.url_helpers.public_send(:"#{name}_path") }.uniq
      end

      # @return [String, nil] a host that the app serves
      def host
        return unless app

        named = app.config.hosts.to_a.grep(String).first if app.config.respond_to?(:hosts)
        (named || app.routes.default_url_options[:host])&.delete_prefix(".")
      end

      def https? = app&.config&.force_ssl ? true : false
    end
  end
end
