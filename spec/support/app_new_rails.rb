# frozen_string_literal: true

require "fileutils"
require "open3"
require "tmpdir"
require_relative "app_requirements"
require_relative "server"

# An app that `rails new` has made here, in a bundle of its own.
class AppNewRails
  CODE = 'require "rails"; require "sqlite3"; require "bundler"; require "capybara"; exit Rails.gem_version >= Gem::Version.new("7.2")'
  OPTIONS = %w[--minimal --skip-asset-pipeline --skip-git --skip-bundle --skip-rubocop --skip-brakeman --skip-dev-gems --quiet].freeze

  def self.missing = AppRequirements.missing("Rails 7.2 with sqlite3 and Capybara", CODE)

  # @param options [Array<String>] further ones of `rails new`
  def initialize(*options)
    @dir = Dir.mktmpdir("fastrack-rails-new")
    run("rails", "new", "shop", *OPTIONS, *options, chdir: @dir, env: { "BUNDLE_GEMFILE" => nil })
  end

  # Writes the Gemfile anew with those of its gems that are here, of the lines that the block makes of its own, and has Bundler find them.
  def bundle
    lines = yield(File.readlines(path("Gemfile"))).grep(/\A\s*(?:source|group|end|gem "(?:rails|sqlite3|puma|capybara|rhebok-rs)")/)
    File.write(path("Gemfile"), lines.grep_v(/rhebok-rs/).join + lines.grep(/rhebok-rs/).map { |line| "#{line.chomp}, path: #{Server::ROOT.inspect}\n" }.join)
    run("bundle", "install", "--local")
  end

  def path(name) = File.join(@dir, "shop", name)
  def write(name, text) = Folder.write(path("."), name, text)

  def environment
    Server::CLEAN_ENVIRONMENT.merge("BUNDLE_GEMFILE" => path("Gemfile"), "BUNDLE_SILENCE_ROOT_WARNING" => "1", "SECRET_KEY_BASE" => "0123456789abcdef" * 4)
  end

  # Gives what a command writes, and raises when it fails.
  def run(*words, chdir: path("."), env: {})
    output, status = Open3.capture2e(environment.merge(env), *words, chdir: chdir)
    raise "#{words.join(" ")}:\n#{output}" unless status.success?

    output
  end

  # @return [Server] whose workers serve. Bundler and Rails take a while to start.
  def serve(*words, env: {})
    server = Server.launch(ru: "", env: environment.merge(env), command: ["sh", "-c", 'cd "$0" && exec "$@"', path("."), *words])
    Eventually.eventually(120, -> { server.log }) { server.ended? || server.log.include?("Fastrack is ready") }
    server
  end

  def remove = FileUtils.remove_entry(@dir)
end
