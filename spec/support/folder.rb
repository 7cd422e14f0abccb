# frozen_string_literal: true

require "tmpdir"

# For examples that have a folder of their own: its path is in @dir until their servers have ended.
module Folder
  def self.included(group)
    group.around do |example|
      Dir.mktmpdir("fastrack-spec") { |dir| (@dir = File.realpath(dir)) && example.run }
    end
  end
end
