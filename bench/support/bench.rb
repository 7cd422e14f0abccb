# frozen_string_literal: true

# Compares Rack servers with each other, and with the least that a request can cost.
module Bench
end

require_relative "workloads"
require_relative "programs"
require_relative "lane"
require_relative "options"
require_relative "single_queue"
require_relative "closed_loop"
require_relative "servers"
require_relative "campaign"
require_relative "targets"
require_relative "report/files"
require_relative "command_line"
