# frozen_string_literal: true

require "rails/generators/base"
require "ripper"
require "fastrack/configuration"

module Fastrack
  # Rails finds and loads this: `bin/rails generate fastrack:install`.
  module Generators
    # Writes config/fastrack.rb, the Procfile's line for the web process, and the server of bin/dev and the Dockerfile.
    class InstallGenerator < ::Rails::Generators::Base
      desc "Writes config/fastrack.rb, and has the Procfile, bin/dev and Rails' Dockerfile start Fastrack."

      COMMAND = "bundle exec fastrack -e ${RAILS_ENV:-${RACK_ENV:-production}}"

      HEAD = <<~RUBY
        # frozen_string_literal: true

        # Fastrack's settings. All of them: docs/options.md of the gem rhebok-rs.

        # Processes. Without a number there are %<default>s. Each serves one request at a
        # time, or as many as RAILS_MAX_THREADS or max_threads say.
        max_workers %<workers>s

        # Seconds that a request may take; then its client gets a 504, and the log the backtraces.
        request_timeout environment == "development" ? 0 : 60

        # Requests after which a worker is replaced; 0: never.
        %<requests>s

        # Seconds that a worker gets for its last requests.
        # graceful_timeout 30

        pid ENV["PIDFILE"]
      RUBY

      def create_config_file
        create_file "config/fastrack.rb", [head, (database_hook if database? && !puma_code&.match?(/^\s*before_fork\b/)), carried].compact.join("\n")
        tell_of_puma if puma_code
      end

      def change_procfile
        return create_file("Procfile", "web: #{COMMAND}\n") unless File.exist?(in_app("Procfile"))
        return append_to_file("Procfile", "web: #{COMMAND}\n") unless File.read(in_app("Procfile")).match?(/^web:/)

        gsub_file "Procfile", /^web:.*$/, "web: #{COMMAND}"
      end

      # What it starts: Procfile.dev (foreman), or bin/rails itself (Rails 8).
      def change_bin_dev
        found = %w[Procfile.dev bin/dev].find { |name| File.exist?(in_app(name)) && File.read(in_app(name)).match?(SERVER) }
        return gsub_file(found, SERVER) { |line| with_server(line) } if found
        return say_status(:note, "bin/dev starts no `bin/rails server`: add `-u fastrack` where it does", :yellow) if File.exist?(in_app("bin/dev"))

        create_file "bin/dev", "#!/bin/sh\nexec bin/rails server -u fastrack \"$@\"\n"
        chmod "bin/dev", 0o755
      end

      # By variables, rackup's and Rack 2's: the entrypoint prepares the database for a command that ends with `bin/rails server`, and for
      # no other.
      def change_dockerfile
        return unless File.exist?(in_app("Dockerfile")) && !File.read(in_app("Dockerfile")).match?(/RACK(?:UP)?_HANDLER|fastrack/)

        gsub_file "Dockerfile", /^CMD .*bin\/rails", "s(?:erver)?"/, "ENV RACKUP_HANDLER=\"fastrack\" RACK_HANDLER=\"fastrack\"\n\\0"
      end

      private

      SERVER = /bin\/rails(?:", "| )s(?:erver)?\b(?!.*fastrack)"?/.freeze
      private_constant :SERVER

      # In a shell or in Ruby.
      def with_server(line)
        line.end_with?('"') && line.include?('", "') ? "#{line}, \"-u\", \"fastrack\"" : "#{line} -u fastrack"
      end

      def in_app(name) = File.expand_path(name, destination_root)

      # Where Puma's file has no number of workers, it means one.
      def head
        default, workers, requests = "as many as there are CPUs, and 1 in development", 'ENV["WEB_CONCURRENCY"]', "# max_request_per_child 1000"
        default, workers, requests = "1, as under Puma", 'ENV.fetch("WEB_CONCURRENCY", 1)', "max_request_per_child 0" if puma_code
        format(HEAD, default: default, workers: workers, requests: requests)
      end

      # config/puma.rb without its comments.
      def puma_code
        return unless File.exist?(in_app("config/puma.rb"))

        tokens = Ripper.lex(File.read(in_app("config/puma.rb")))
        @puma_code ||= tokens.map { |_, type, text| type == :on_comment ? "\n" : text }.join.gsub(/[ \t]+$/, "").gsub(/\n{2,}/, "\n").lstrip
      end

      def carried
        "# What config/puma.rb had: Puma's words work here, too.\n#{puma_code}" if puma_code
      end

      def tell_of_puma
        words = puma_code.scan(/^\s*((?:plugin :)?\w+[!?]?)/).flatten.uniq.select { |word| PumaFile.word?(word[/\A\w+/].to_sym) }
        say_status :carried, "#{words.join(", ")} from config/puma.rb, which is no longer read; delete it", :yellow
        ConfigFile.evaluate(in_app("config/fastrack.rb"), environment: {})
      rescue ConfigurationError => e
        say_status :error, "#{e.message}: mend this before the start", :red
      end

      def database? = defined?(::ActiveRecord::Base)

      def database_hook
        argument = ::Rails.gem_version >= Gem::Version.new("7.1") ? "(:all)" : ""
        <<~RUBY
          # Two processes must not share a connection to the database.
          before_fork do
            ActiveRecord::Base.connection_handler.clear_all_connections!#{argument} if defined?(ActiveRecord::Base)
          end
        RUBY
      end
    end
  end
end
