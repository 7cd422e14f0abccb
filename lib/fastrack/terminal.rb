# frozen_string_literal: true

module Fastrack
  # The terminal that the server was started from, if there is one.
  module Terminal
    # Whether what a terminal sends to its programs (INT; WINCH when its window changes) goes to this process.
    #
    # @param stat [String] see proc(5)
    def self.foreground?(stat = "/proc/self/stat")
      text = File.read(stat)
      # State, parent, group, session, terminal, the terminal's foreground group: after the name, which may have spaces.
      fields = text[(text.rindex(")") + 2)..].split
      fields[2] == fields[5]
    rescue SystemCallError
      $stdin.tty?
    end
  end
end
