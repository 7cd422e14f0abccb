# frozen_string_literal: true

require_relative "servers/fastrack"
require_relative "servers/nginx_alone"
require_relative "servers/puma"
require_relative "servers/unicorn"

module Bench
  # The servers that bench/run knows how to start. Each has a `name`, says with `serves?` whether it can take a
  # workload, and gives with `commands` what to start for a Site.
  module Servers
    CLOSING = "enable_keep_alives false\n"
    BUILT_IN = [
      Fastrack.new("fastrack"), Fastrack.new("fastrack-oobgc", "OobGC"),
      Fastrack.new("fastrack-oobgc-auto", "OobGC=auto"),
      Fastrack.new("fastrack-max-queue-time", "MaxQueueTime=1"),
      # A connection stays with the worker that accepted it.
      Fastrack.new("fastrack-pinned", "HandOver=false"), NginxAlone.new, Unicorn.new, Puma.new("puma", 1),
      # Beside each other only.
      Fastrack.new("fastrack-threads", threads: true), Puma.new("puma-threads", nil),
      # As Heroku tells its users to have it; Puma 6.5 and newer know the word.
      Puma.new("puma-closing", 1, CLOSING), Puma.new("puma-threads-closing", nil, CLOSING)
    ].freeze
    private_constant :CLOSING
    NAMES = BUILT_IN.map(&:name).freeze

    # @param names [Array<String>]
    # @return [Array] one object for each name
    # @raise [Options::Invalid] for a name that is none
    def self.named(names)
      names.uniq.map do |name|
        BUILT_IN.find { |server| server.name == name } or
          raise Options::Invalid, "no server #{name}; there are: #{NAMES.join(", ")}"
      end
    end
  end
end
