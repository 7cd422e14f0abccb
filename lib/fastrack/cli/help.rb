# frozen_string_literal: true

require "optparse"

module Fastrack
  # What `--help` says, in 80 columns.
  module Help
    # Of the command alone. The options that serve the app follow.
    ALL = <<~TEXT
      Usage: fastrack [options] [config.ru]
             fastrack COMMAND [options]

      Serves a Rack app. The commands:

          check                     check the configuration and load the app
          tune                      measure how many workers fit

          status                    show what each worker of a running server does
          reload                    new workers, new configuration (HUP);
                                    phased-restart is the same
          restart                   new code, and no request is lost (USR2)
          refork                    fork the workers anew, from one that has served
          stop                      finish all requests and end (TERM)
          workers +1, workers -1    one worker more or less (TTIN, TTOU)

      fastrack COMMAND --help says more. The options:

    TEXT

    FOUND = <<~TEXT
      The server is that of the ConfigFile, of a pid file or of a socket; else the
      one that runs in this directory.
    TEXT

    RELOAD = <<~TEXT
      Usage: fastrack reload [options]
             fastrack phased-restart [options]

      Has a running server read its ConfigFile again and replace its workers, one by
      one (HUP). New code comes with it only where each worker loads the app: with
      `preload_app false`. Waits until the new workers serve; the status is 1, with
      what the log says, if they do not.

      #{FOUND}
    TEXT

    COMMANDS = {
      "check" => <<~TEXT,
        Usage: fastrack check [options] [config.ru]

        Checks the configuration, loads the app, and listens nowhere. The status is 0,
        or 1 with the reason if a start would fail.

      TEXT
      "status" => <<~TEXT,
        Usage: fastrack status [--watch] [--json] [options]

        Shows what each worker of a running server does. The status is 0 if it serves.

        #{FOUND}
      TEXT
      "reload" => RELOAD, "phased-restart" => RELOAD,
      "restart" => <<~TEXT,
        Usage: fastrack restart [options]

        Has a running server start a new one, with new code, that takes over when it is
        ready (USR2). No request is lost. Waits for that; the status is 1, with what the
        log says, if it does not come to it and the old one serves on.

        #{FOUND}
      TEXT
      "refork" => <<~TEXT,
        Usage: fastrack refork [options]

        Has a running server fork its workers anew, one by one, from the one that has
        served most, so that they share its memory (URG). Code and configuration stay.
        Waits until they serve; the status is 1, with what the log says, if it does not
        come to it. See docs/memory.md.

        #{FOUND}
      TEXT
      "stop" => <<~TEXT,
        Usage: fastrack stop [options]

        Has a running server finish all requests and end (TERM). Does not wait for it.

        #{FOUND}
      TEXT
      "workers" => <<~TEXT
        Usage: fastrack workers +1 [options]
               fastrack workers -1 [options]

        Has a running server start so many workers more, or stop so many (TTIN, TTOU).

        #{FOUND}
      TEXT
    }.freeze

    # What may be meant by a word that is no file.
    WORDS = [*COMMANDS.keys, "tune"].freeze

    # Options whose help fits.
    class Options < OptionParser
      # Columns of what follows the option.
      WIDTH = 49

      # @param banner [String]
      def initialize(banner)
        super(banner, 27, "  ")
      end

      def on(*words, &block)
        super(*words.flat_map { |word| word.is_a?(String) && !word.start_with?("-") ? wrapped(word) : [word] }, &block)
      end

      private

      def wrapped(text)
        text.scan(/\S.{0,#{WIDTH - 1}}(?=\s|\z)|\S+/)
      end
    end
  end
end
