# frozen_string_literal: true

require "rails/generators/base"

module Fastrack
  # Rails finds and loads this: `bin/rails generate fastrack:install`.
  module Generators
    # Writes config/fastrack.rb, the Procfile's line for the web process, and the server of bin/dev and the Dockerfile.
    class InstallGenerator < ::Rails::Generators::Base
      desc "Writes config/fastrack.rb, and has the Procfile, bin/dev and Rails' Dockerfile start Fastrack."

      COMMAND = "bundle exec fastrack -p ${PORT:-3000}"

      HEAD = <<~RUBY
        # frozen_string_literal: true

        # Fastrack's settings. All of them: docs/options.md of the gem rhebok-rs.

        # Processes; "auto" is one per CPU. Without a number there are 5, and 1 in development. Each serves one request at a
        # time, or as many as RAILS_MAX_THREADS or max_threads say.
        max_workers ENV["WEB_CONCURRENCY"]

        # Seconds that a request may take; then its client gets a 504, and the log the backtraces.
        request_timeout ENV.fetch("RAILS_ENV", "development") == "development" ? 0 : 60

        # Requests after which a worker is replaced; 0: never.
        # max_request_per_child 1000

        # Seconds that a worker gets for its last requests.
        # graceful_timeout 30

        pid ENV["PIDFILE"]
      RUBY

      def create_config_file
        create_file "config/fastrack.rb", database? ? "#{HEAD}\n#{database_hook}" : HEAD
        return unless File.exist?(in_app("config/puma.rb"))

        say_status :note, "config/puma.rb is not read beside config/fastrack.rb; keep one of them", :yellow
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

      # By a variable: the entrypoint prepares the database for a command that ends with `bin/rails server`, and for no other.
      def change_dockerfile
        return unless File.exist?(in_app("Dockerfile")) && !File.read(in_app("Dockerfile")).match?(/RACK_HANDLER|fastrack/)

        gsub_file "Dockerfile", /^CMD .*bin\/rails", "s(?:erver)?"/, "ENV RACK_HANDLER=\"fastrack\"\n\\0"
      end

      private

      SERVER = /bin\/rails(?:", "| )s(?:erver)?\b(?!.*fastrack)"?/.freeze
      private_constant :SERVER

      # In a shell or in Ruby.
      def with_server(line)
        line.end_with?('"') && line.include?('", "') ? "#{line}, \"-u\", \"fastrack\"" : "#{line} -u fastrack"
      end

      def in_app(name)
        File.expand_path(name, destination_root)
      end

      def database?
        defined?(::ActiveRecord::Base)
      end

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
