# frozen_string_literal: true

require "capybara"
require "stringio"
require_relative "in_process/server"
require_relative "version"

# `Capybara.server = :fastrack`, or `Capybara.server = :fastrack, { Silent: true }`. Options are Fastrack::Server's, and Puma's `Silent` and
# `Threads` ("0:4": at most four requests at a time). Like Capybara's other servers this one ends with the process.
Capybara.register_server :fastrack do |app, port, host, **options|
  threads = options.delete(:Threads)
  options = { threads: Integer(threads.to_s.split(":").last), **options } if threads
  silent = [options.delete(:Silent), options.delete(:silent)].any?
  # Capybara raises the app's exceptions in the test, too.
  quiet = silent ? { errors: StringIO.new } : { log: $stdout }
  Fastrack::Server.new(app, host: host, port: port, **quiet, **options).run
end
