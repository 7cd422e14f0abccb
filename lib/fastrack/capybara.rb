# frozen_string_literal: true

require "capybara"
require "stringio"
require_relative "in_process/server"
require_relative "version"

# `Capybara.server = :fastrack`, or `Capybara.server = :fastrack, { Silent: true }`. It takes Fastrack::Server's options, and of
# Puma's `Silent` and `Threads` ("0:4": at most four requests at a time). Like Capybara's other servers it ends with the process.
Capybara.register_server :fastrack do |app, port, host, **options|
  threads = options.delete(:Threads)
  options = { threads: Integer(threads.to_s.split(":").last), **options } if threads
  silent = [options.delete(:Silent), options.delete(:silent)].any?
  # What the app raises is also raised in the test.
  quiet = silent ? { errors: StringIO.new } : { log: $stdout }
  Fastrack::Server.new(app, host: host, port: port, **quiet, **options).run
end
