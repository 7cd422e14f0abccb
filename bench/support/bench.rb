# frozen_string_literal: true

# Compares Rack servers with each other, and with the least that a request can cost.
module Bench
end

require_relative "workloads"
require_relative "machine"
require_relative "lane"
require_relative "options"
require_relative "servers"
require_relative "campaign"
require_relative "targets"
require_relative "report"
