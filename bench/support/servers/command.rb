# frozen_string_literal: true

require "shellwords"

module Bench
  module Servers
    # Any other server, by the command that starts it.
    class Command
      # What the command may hold, and what stands for it.
      PLACEHOLDERS = {
        "{port}" => ->(site) { site.endpoint.port.to_s },
        "{socket}" => ->(site) { site.endpoint.path },
        "{ru}" => lambda(&:ru),
        "{workers}" => ->(site) { site.workers.to_s }
      }.freeze
      private_constant :PLACEHOLDERS

      attr_reader :name

      # @param templates [Array<String>] commands with {port} or {socket}, as a shell would split them
      # @raise [Options::Invalid] when one has neither
      def initialize(name, templates)
        @name = name
        @templates = templates
        return if templates.all? { |template| template.match?(/\{(port|socket)\}/) }

        raise Options::Invalid, "--server #{name}: the command needs {port} (on 127.0.0.1) or {socket}"
      end

      # @return [Boolean] behind nginx a {socket} is needed, else a {port}
      def serves?(workload) = !template(workload).nil?

      # @return [Array<Array<String>>] one program
      def commands(site)
        words = Shellwords.split(template(site.workload)).map do |word|
          word.gsub(Regexp.union(PLACEHOLDERS.keys)) { |name| PLACEHOLDERS.fetch(name).call(site) }
        end
        [site.command(words)]
      end

      private

      def template(workload)
        place = workload.nginx? ? "{socket}" : "{port}"
        @templates.find { |template| template.include?(place) }
      end
    end
  end
end
