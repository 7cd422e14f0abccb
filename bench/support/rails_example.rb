# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require_relative "lane"

module Bench
  # The Rails app of the examples with a PostgreSQL of its own, in a lane that has both.
  class RailsExample
    # It cannot be had; the message says why.
    class Failed < StandardError; end

    DIR = File.join(Lane::ROOT, "examples/rails")

    # Runs in the lane, as long as its stdin is open.
    DATABASE = <<~'RUBY'
      require "pg"
      require "eventually"
      require "app_postgres"

      postgres = AppPostgres.new
      begin
        puts postgres.environment.compact.map { |pair| pair.join("=") }.join("\t")
        $stdout.flush
        $stdin.read
      ensure
        postgres.stop
      end
    RUBY
    private_constant :DATABASE

    # @param lane [Lane]
    # @yieldparam example [RailsExample] while its database runs
    def self.run(lane)
      # Servers and database meet where all of the lane's programs see the same files.
      Dir.mktmpdir("rails", lane.scratch) do |dir|
        File.chmod(0o755, dir)
        command = lane.command(["env", "TMPDIR=#{dir}", "ruby", "-I", File.join(Lane::ROOT, "spec/support"), "-e", DATABASE])
        IO.popen(command, "r+", chdir: Lane::ROOT) do |database|
          line = database.gets or raise Failed, "no PostgreSQL in the lane #{lane.name}"
          yield new(dir, line.chomp.split("\t").to_h { |pair| pair.split("=", 2) })
        ensure
          database.close_write
          database.read
        end
      end
    end

    # @return [Hash{String => String}] what the app has to have in its environment
    attr_reader :environment

    def initialize(dir, database)
      @config = File.join(dir, "fastrack.rb")
      @environment = { **database, "SECRET_KEY_BASE" => "0123456789abcdef" * 8 }
      # The number of workers, and when they are replaced, are for whoever measures to say.
      File.write(@config, File.readlines(File.join(DIR, "config/fastrack.rb")).grep_v(/\A(?:max|min)_/).join)
    end

    # @return [String] a config.ru
    def app = File.join(DIR, "config.ru")

    # @return [Array<String>] for `fastrack`
    def options = ["-c", @config]
  end
end
