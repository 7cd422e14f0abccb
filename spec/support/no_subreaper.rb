# frozen_string_literal: true

# Required by servers that are to run as on macOS, which has no subreapers: by RUBYOPT, because the master asks to become one before
# generation 0 reads the ConfigFile.
module Fastrack
  singleton_class.prepend(Module.new { def adopt_orphans = false })
end
