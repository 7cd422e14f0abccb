# frozen_string_literal: true

require "rubygems/package"
require "stringio"
require "tmpdir"
require_relative "native_file"

module Gems
  # Writes a gem as RubyGems does, but lets zopfli compress it, where it is there: it takes half a minute, and gems are 3 % smaller.
  class Package < Gem::Package
    # @param io [IO] gets the compressed bytes
    # @yieldparam content [IO] takes the bytes to compress
    def gzip_to(io)
      zopfli = Gems.tool("zopfli", missing: nil) or return super

      content = StringIO.new("".b)
      yield content
      io.write(compress(zopfli, content.string))
    end

    private

    # It reads no pipe and writes none: it puts FILE.gz beside FILE.
    def compress(zopfli, content)
      Dir.mktmpdir("fastrack-gem") do |folder|
        path = File.join(folder, "content")
        File.binwrite(path, content)
        system(zopfli, path) || raise("zopfli failed (#{$?})")
        File.binread("#{path}.gz")
      end
    end
  end
end
