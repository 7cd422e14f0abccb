# frozen_string_literal: true

# Whether the server has the back end of macOS, which Linux has in the lane `portable`. Examples of what only Linux's own
# can do are tagged with it, and are skipped here: `it "...", linux: "sendfile(2)"`. docs/platforms.md lists that.
module Portable
  ON = !RUBY_PLATFORM.include?("linux") || ENV.fetch("FASTRACK_FEATURES", "").split(/[\s,]+/).include?("portable")

  # What /proc says of a file in memory, or of what stands for it: a file without a name, or without one any more.
  MEMORY = ON ? %r{/(#\d+|\.tmp\w+) \(deleted\)\z} : /memfd:fastrack/.freeze
end

RSpec.configure do |config|
  config.define_derived_metadata(:linux) { |metadata| metadata[:skip] ||= "only on Linux: #{metadata[:linux]}" if Portable::ON }
end
