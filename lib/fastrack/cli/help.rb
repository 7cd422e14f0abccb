# frozen_string_literal: true

require "optparse"

module Fastrack
  # The texts of `--help`, in 80 columns.
  module Help
    # Without a command. The options for serving follow.
    ALL = <<~TEXT
      Usage: fastrack [options] [config.ru]
             fastrack COMMAND [options]

      Serves a Rack app. The commands:

          check                     check the configuration and load the app
          tune                      measure how many workers fit

          status                    show the state of a running server's workers
          stats --puma              print its statistics with Puma's keys
          reload                    load new code and configuration without losing a
                                    request (HUP); phased-restart is the same
          restart                   the same by a new master (USR2): for a new Ruby or
                                    Fastrack, and for a server of rackup or Rails
          refork                    fork the workers anew, from one that has served
          profile                   write down where a worker's requests spend their
                                    time
          stop                      finish all requests and exit (TERM)
          workers +1, workers -1    add or remove a worker (TTIN, TTOU)

      fastrack COMMAND --help describes a command. The options:

    TEXT

    FOUND = <<~TEXT
      Finds the server by the configuration file, the pid file or the socket, else
      the server that runs in this directory.
    TEXT

    RELOAD = <<~TEXT
      Usage: fastrack reload [options]
             fastrack phased-restart [options]

      Tells a running server to read its configuration file again, to load the app's
      code anew, and to replace its workers one by one (HUP). A server that rackup or
      Rails has started keeps its code. Waits until the new workers serve. If they
      fail, the old ones serve on: says why and exits with 1.

      #{FOUND}
    TEXT

    COMMANDS = {
      "check" => <<~TEXT,
        Usage: fastrack check [--warm-up] [options] [config.ru]

        Checks the configuration and loads the app, without listening. With --warm-up
        it also asks the app for the pages of warm_up. Exits with 0, or with 1 and the
        reason if a start or a page would fail.

      TEXT
      "status" => <<~TEXT,
        Usage: fastrack status [--watch] [--json] [options]

        Shows the state of a running server and its workers. Exits with 0 if the server
        serves.

        #{FOUND}
      TEXT
      "stats" => <<~TEXT,
        Usage: fastrack stats --puma [options]

        Prints the statistics of a running server as JSON with Puma's keys, for
        dashboards made for Puma. Exits with 0 if the server serves.

        #{FOUND}
      TEXT
      "reload" => RELOAD, "phased-restart" => RELOAD,
      "restart" => <<~TEXT,
        Usage: fastrack restart [options]

        Tells a running server to start a new master with new code, which takes over
        when it is ready (USR2). No request is lost. Waits until the new master serves.
        If it fails, the old one serves on; says why and exits with 1.

        #{FOUND}
      TEXT
      "refork" => <<~TEXT,
        Usage: fastrack refork [options]

        Has a running server fork its workers anew, one by one, from the one that has
        served most, so that they share its memory (URG). Code and configuration stay.
        Waits until they serve; if it does not come to it, says why and exits with 1.
        See docs/memory.md.

        #{FOUND}
      TEXT
      "stop" => <<~TEXT,
        Usage: fastrack stop [options]

        Tells a running server to finish all requests and exit (TERM). Waits until it
        is gone. If it still runs 5 s after DrainDelay and GracefulTimeout, says so and
        exits with 1.

        #{FOUND}
      TEXT
      "profile" => <<~TEXT,
        Usage: fastrack profile [--worker N] [--seconds N] [--gvl] [options]

        Has a worker of a running server sample its threads that have requests, 99
        times a second, and writes their stacks to two files here: collapsed, for
        flame graphs, and for speedscope. Exits with 1 if the worker has no request.

        #{FOUND}
      TEXT
      "workers" => <<~TEXT
        Usage: fastrack workers +1 [options]
               fastrack workers -1 [options]

        Tells a running server to add or remove workers (TTIN, TTOU).

        #{FOUND}
      TEXT
    }.freeze

    # Commands. An argument that is no file may be a misspelled command.
    WORDS = [*COMMANDS.keys, "tune"].freeze

    # Options with their help, wrapped to 80 columns.
    class Options < OptionParser
      # Columns of the text beside an option.
      WIDTH = 49

      # @param banner [String]
      def initialize(banner)
        super(banner, 27, "  ")
      end

      def on(*words, &block)
        super(*words.flat_map { |word| word.is_a?(String) && !word.start_with?("-") ? wrapped(word) : [word] }, &block)
      end

      private

      def wrapped(text) = text.scan(/\S.{0,#{WIDTH - 1}}(?=\s|\z)|\S+/)
    end
  end
end
