# frozen_string_literal: true

require "fileutils"
require "tmpdir"

# For examples that have a folder of their own: its path is in @dir until their servers have ended.
module Folder
  def self.included(group)
    group.around { |example| Dir.mktmpdir("fastrack-spec") { |dir| (@dir = File.realpath(dir)) && example.run } }
  end

  # Writes a file, and gives its path.
  def self.write(dir, name, text, **options)
    File.join(dir, name).tap { |path| FileUtils.mkdir_p(File.dirname(path)) && File.write(path, text, **options) }
  end
end
