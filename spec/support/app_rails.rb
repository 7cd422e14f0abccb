# frozen_string_literal: true

require "fileutils"
require "json"
require "rbconfig"
require "shellwords"
require "tmpdir"
require_relative "app_postgres"
require_relative "app_requirements"
require_relative "web_socket"

# The Rails app of the examples, in a copy that may be written to.
class AppRails
  LIBRARIES = 'require "rails"; require "active_record"; require "action_cable"; require "pg"; exit Rails.gem_version >= Gem::Version.new("7.1")'

  COMPLETED = "the executor has completed in"

  def self.missing
    libraries = AppRequirements.missing("Rails 7.1 with pg", LIBRARIES)
    return libraries if libraries

    require "pg"
    raise "lane #{AppRequirements::COMPLETE_LANE} must have PostgreSQL" if AppPostgres.bin.nil? && AppRequirements.complete?

    "no PostgreSQL" unless AppPostgres.bin
  end

  # A WebSocket that has subscribed to the app's channel.
  class Notes < WebSocket
    IDENTIFIER = JSON.generate(channel: "NotesChannel")

    def initialize(server)
      super(server, "/cable", protocol: "actioncable-v1-json")
      types = [next_message["type"]]
      send_text(JSON.generate(command: "subscribe", identifier: IDENTIFIER))
      types << next_message["type"]
      raise Failed, types.inspect unless types == %w[welcome confirm_subscription]
    end

    def say(text) = send_text(JSON.generate(command: "message", identifier: IDENTIFIER, data: JSON.generate(action: "say", text: text)))

    def heard = next_message.fetch("message")

    # Without Action Cable's pings.
    def next_message
      message = JSON.parse(receive) until message && message["type"] != "ping"
      message
    end
  end

  def initialize(postgres)
    @postgres = postgres
    @dir = Dir.mktmpdir("fastrack-rails")
    FileUtils.cp_r(File.join(Server::ROOT, "examples/rails/."), @dir)
    FileUtils.mkdir_p(path("tmp"))
  end

  # Through rackup, with the app's own ConfigFile. Whenever Rails has done with a request, and not before its body was
  # closed, the log gets a line: COMPLETED and the worker's pid.
  def serve(options:, env: {}, warm_up: false)
    # The ConfigFile would have the last word on these. Pages of a warm-up would count as requests.
    config = File.read(path("config/fastrack.rb")).lines.grep_v(warm_up ? /\A(?:max|min)_/ : /\A(?:max|min|warm)_/).join
    ru = <<~RUBY
      require "#{path("config/environment")}"
      Rails.application.executor.to_complete { puts "#{COMPLETED} \#{Process.pid}" }
      run Rails.application
    RUBY
    Server.start(ru: ru, options: options, config: config, env: environment.merge("RAILS_ENV" => "production", **env))
  end

  def rails_server(arguments, env: {})
    command = [RbConfig.ruby, "-w", "-I", Server::LIB, path("bin/rails"), "server", "-u", "fastrack", *arguments]
    # A wrapper that leaves out what it wraps, which is rackup.
    wrapper = ["sh", "-c", "cd #{Shellwords.escape(@dir)} && exec #{Shellwords.join(command)}"]
    Server.start(ru: "", wrapper: wrapper, env: environment.merge(env))
  end

  def path(file) = File.join(@dir, file)
  def remove = FileUtils.remove_entry(@dir)
  def environment = @postgres.environment.merge("SECRET_KEY_BASE" => "0123456789abcdef" * 8)
end

# A database and a copy of the app, in @postgres and @app, for all examples of a file.
RSpec.shared_context "with a Rails app" do
  before(:context) do
    @postgres = AppPostgres.new
    @app = AppRails.new(@postgres)
  end

  after(:context) do
    Server.stop_all(:context)
    @app&.remove
    @postgres&.stop
  end
end
