# frozen_string_literal: true

require "rails/generators/base"
require "fastrack/configuration"

module Fastrack
  # Rails finds and loads this: `bin/rails generate fastrack:install`.
  module Generators
    # Writes config/fastrack.rb, the Procfile's line for the web process, and the server of bin/dev and the Dockerfile. `bin/rails destroy
    # fastrack:install` reverts all changes.
    class InstallGenerator < ::Rails::Generators::Base
      desc "Writes config/fastrack.rb, and has the Procfile, bin/dev and Rails' Dockerfile start Fastrack."

      COMMAND = "bundle exec fastrack -e ${RAILS_ENV:-${RACK_ENV:-production}}"
      WEB = "web: #{COMMAND}\n"

      # Marks the Procfile's former line.
      BEFORE = "# before fastrack:install: "

      DEV = "#!/bin/sh\nexec bin/rails server -u fastrack \"$@\"\n"
      HANDLER = "ENV RACKUP_HANDLER=\"fastrack\" RACK_HANDLER=\"fastrack\"\n"

      # Thruster's port, which Kamal and EXPOSE name.
      HANDLER_ON_80 = "#{HANDLER.chomp} PORT=\"80\"\n"

      HEAD = <<~RUBY
        # frozen_string_literal: true

        # Fastrack's settings. All of them: docs/options.md of the gem rhebok-rs.

        # Processes. Without a number there are %<default>s. Each serves three requests at a
        # time, as Rails has it under Puma, or as many as RAILS_MAX_THREADS or max_threads say.
        max_workers %<workers>s

        # Seconds that a request may take; then its client gets a 504, and the log the backtraces.
        request_timeout environment == "development" ? 0 : 60

        # Requests after which a worker is replaced; 0: never.
        %<requests>s

        # Seconds that a worker gets for its last requests.
        # graceful_timeout 30

        # Pages that are asked for before workers are forked: they share what that loads, and no
        # client has a slow first request. true: the root and the health check. Or name some
        # that change nothing: warm_up "/", "/posts"
        warm_up environment == "production"

        # Files of public/ and compression without the app, by a proxy of the server's own:
        # docs/proxy.md of the gem.
        %<files>spublic_files "public" if environment == "production"
        %<files>scache_control "/assets/*", "public, max-age=31536000, immutable"

        pid ENV["PIDFILE"]
      RUBY

      def create_config_file
        create_file "config/fastrack.rb", [head, (database_hook if database? && !puma_file&.match?(/^\s*before_fork\b/)), carried].compact.join("\n")
        tell_of_puma if puma_file && behavior == :invoke
      end

      def change_procfile
        return restore("Procfile") { |text| text.sub(/^#{BEFORE}(web:.*\n)web:.*\n/, "\\1").sub(WEB, "") } if behavior == :revoke
        return create_file("Procfile", WEB) unless File.exist?(in_app("Procfile"))

        text = File.read(in_app("Procfile"))
        return append_to_file("Procfile", WEB) unless text.match?(/^web:/)

        gsub_file "Procfile", /^(web:.*)$/, "#{BEFORE}\\1\n#{WEB.chomp}" unless text.include?(WEB.chomp)
      end

      # Changes the command of bin/dev: Procfile.dev (foreman), or bin/rails itself (Rails 8).
      def change_bin_dev
        return %w[Procfile.dev bin/dev].each { |name| restore(name) { |text| text.sub(DEV, "").sub(/ -u fastrack|, "-u", "fastrack"/, "") } } if behavior == :revoke

        found = %w[Procfile.dev bin/dev].find { |name| File.exist?(in_app(name)) && File.read(in_app(name)).match?(SERVER) }
        return gsub_file(found, SERVER) { |line| with_server(line) } if found
        return say_status(:note, "bin/dev starts no `bin/rails server`: add `-u fastrack` where it does", :yellow) if File.exist?(in_app("bin/dev"))

        create_file "bin/dev", DEV
        chmod "bin/dev", 0o755
      end

      # Sets the variables of rackup and of Rack 2, and takes Thruster out. The command of Rails stays, because the entrypoint prepares the
      # database only for a command that ends with `bin/rails server`.
      def change_dockerfile
        return restore("Dockerfile") { |text| text.sub(/^#{BEFORE}(CMD .*\n)#{HANDLER_ON_80}CMD .*\n/, "\\1").sub(HANDLER, "") } if behavior == :revoke
        return unless File.exist?(in_app("Dockerfile")) && !File.read(in_app("Dockerfile")).match?(/RACK(?:UP)?_HANDLER|fastrack/)
        return gsub_file("Dockerfile", /^#{THRUST}/, "#{BEFORE}\\0\n#{HANDLER_ON_80}CMD [\\1") if thruster?

        gsub_file "Dockerfile", /^CMD .*bin\/rails", "s(?:erver)?"/, "#{HANDLER}\\0"
      end

      private

      SERVER = /bin\/rails(?:", "| )s(?:erver)?\b(?!.*fastrack)"?/.freeze
      THRUST = /CMD \["(?:\.\/)?bin\/thrust", (.*bin\/rails", "s(?:erver)?".*)$/.freeze
      private_constant :SERVER, :THRUST

      # Adds the server to a line of shell or Ruby.
      def with_server(line)
        line.end_with?('"') && line.include?('", "') ? "#{line}, \"-u\", \"fastrack\"" : "#{line} -u fastrack"
      end

      # Whether Rails' Dockerfile has put Thruster in front, also before an earlier run of this generator.
      def thruster? = File.exist?(in_app("Dockerfile")) && File.read(in_app("Dockerfile")).match?(/^(?:#{BEFORE})?#{THRUST}/)

      def in_app(name) = File.expand_path(name, destination_root)

      # Reverts a file's change. A file without other content is removed.
      #
      # @yieldparam text [String]
      # @yieldreturn [String] the former text
      def restore(name)
        return unless File.exist?(in_app(name))

        text = File.read(in_app(name))
        before = yield text
        return if before == text

        say_status(before.empty? ? :remove : :restore, name, :red)
        return if options[:pretend]

        before.empty? ? File.delete(in_app(name)) : File.write(in_app(name), before)
      end

      # Head of the file. A puma.rb without `workers` means one worker. Values of the puma.rb are not set twice.
      def head
        default, workers, requests = "as many as there are CPUs, and 1 in development", 'ENV["WEB_CONCURRENCY"]', "# max_request_per_child 1000"
        default, workers, requests = "1, as under Puma", 'ENV.fetch("WEB_CONCURRENCY", 1)', "max_request_per_child 0" if puma_file
        text = format(HEAD, default: default, workers: workers, requests: requests, files: ("# " unless thruster?))
        text = text.sub(/^# Processes\..*?\n\n/m, "") if puma_file&.match?(/^workers\b(?!.*\b(?:if|unless)\b)/)
        text = text.sub("max_workers ", "workers ") if puma_file&.match?(/^\s*workers\b/)
        puma_file&.match?(/^\s*pidfile\b/) ? text.sub(/^pid .*\n/, "").sub(/\n+\z/, "\n") : text
      end

      # Content of config/puma.rb without its magic comment.
      def puma_file
        return unless File.exist?(in_app("config/puma.rb"))

        @puma_file ||= File.read(in_app("config/puma.rb")).sub(/\A# frozen_string_literal:.*\n\n*/, "")
      end

      def carried
        "# What config/puma.rb had: Puma's words work here, too.\n#{puma_file}" if puma_file
      end

      def tell_of_puma
        words = puma_file.scan(/^\s*((?:plugin :)?\w+[!?]?)/).flatten.uniq.select { |word| PumaFile.word?(word[/\A\w+/].to_sym) }
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
