# frozen_string_literal: true

module Fastrack
  # What stops a server from starting and its user can mend: its message is one line, fit to be shown without a backtrace.
  class Error < StandardError
  end

  # An option, a word of a ConfigFile or an environment variable that cannot be understood.
  class ConfigurationError < Error
  end

  # An address that cannot be listened on.
  class ListenError < Error
  end

  # An address where something else listens, which may end soon.
  class AddressInUseError < ListenError
  end
end
