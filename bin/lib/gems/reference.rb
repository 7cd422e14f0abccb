# frozen_string_literal: true

require "fileutils"
require_relative "../../../lib/fastrack/cli/arguments"
require_relative "../../../lib/fastrack/tune/command"
require_relative "../../../lib/fastrack/version"

module Fastrack
  # The manual page and the shell completions, which are files of the gem. Both are made of the option parsers behind `--help`, and so name
  # what there is.
  module Reference
    # Each file in the gem, and what makes its text.
    FILES = {
      "man/fastrack.1" => -> { ManPage.text }, "completions/fastrack.bash" => -> { Completion.bash },
      "completions/fastrack.fish" => -> { Completion.fish }, "completions/fastrack.zsh" => -> { Completion.zsh }
    }.freeze

    class << self
      # Makes them.
      #
      # @param folder [String]
      def write(folder)
        FILES.each do |name, text|
          path = File.join(folder, name)
          FileUtils.mkdir_p(File.dirname(path))
          File.write(path, text.call)
        end
      end

      # @return [Hash{String => OptionParser}] by command; "" for none
      def parsers
        @parsers ||= Arguments.parsers.merge("tune" => Tune::Command.new([]).parser)
      end

      # @return [Array<Array(Array<String>, String, String)>] of each option its flags, its argument and its help
      def options(command)
        parsers.fetch(command).top.list.grep(OptionParser::Switch).map do |switch|
          [switch.short.map { |flag| flag[0, 2] } + switch.long, switch.arg.to_s.strip.delete_prefix("="), switch.desc.join(" ")]
        end
      end
    end
  end

  # man/fastrack.1, see man(7).
  module ManPage
    class << self
      def text
        [%(.TH FASTRACK 1 "" "Fastrack #{VERSION}"), section("NAME", 'fastrack \- prefork web server for Rack apps'), *commands,
         section("CONFIGURATION FILE", "Words of config/fastrack.rb, and names for \\fB\\-O\\fR:"), *words,
         section("SEE ALSO", escape("docs/options.md, docs/signals.md and docs/deploy.md in the gem rhebok-rs"))].join("\n") << "\n"
      end

      private

      def commands
        Reference.parsers.keys.flat_map do |command|
          [section(["fastrack", *command].join(" ").strip.upcase, ".nf\n#{escape(Reference.parsers[command].banner.chomp)}\n.fi"),
           *Reference.options(command).map { |flags, argument, help| item(flags.join(", "), argument, help) }]
        end
      end

      def words
        Option::ALL.map { |option| item("#{option.word}, #{option.name}", "", option.help_with_default) }
      end

      def section(title, text) = ".SH #{title}\n#{text}"

      def item(name, argument, help)
        ".TP\n\\fB#{escape(name)}\\fR#{" \\fI#{escape(argument)}\\fR" unless argument.empty?}\n#{escape(help)}"
      end

      # A line that begins with a dot or an apostrophe would be a request to troff.
      def escape(text) = text.gsub("\\", "\\e").gsub("-", "\\-").gsub(/^(?=[.'])/, "\\\\&")
    end
  end

  # Scripts that a shell sources.
  module Completion
    class << self
      def bash
        <<~SH
          _fastrack() {
            local words current=${COMP_WORDS[COMP_CWORD]}
            case ${COMP_WORDS[1]} in
          #{commands.map { |command| "    #{command}) words='#{flags(command).join(" ")}' ;;\n" }.join}    *) words='#{[*commands, *flags("")].join(" ")}' ;;
            esac
            [[ $COMP_CWORD -gt 1 && $current != -* ]] && words=    # a file
            COMPREPLY=($(compgen -W "$words" -- "$current"))
          }
          complete -o default -F _fastrack fastrack
        SH
      end

      # zsh has a layer for bash's.
      def zsh = "autoload -Uz bashcompinit && bashcompinit\n#{bash}"

      def fish
        lines = commands.map { |command| "complete -c fastrack -n __fish_use_subcommand -a #{command}" }
        ["", *commands].each do |command|
          seen = command.empty? ? "__fish_use_subcommand" : "'__fish_seen_subcommand_from #{command}'"
          flags(command).each { |flag| lines << "complete -c fastrack -n #{seen} #{flag.start_with?("--") ? "-l" : "-s"} #{flag.delete_prefix("-").delete_prefix("-")}" }
        end
        lines.join("\n") << "\n"
      end

      private

      def commands = Reference.parsers.keys.reject(&:empty?)

      def flags(command) = Reference.options(command).flat_map(&:first)
    end
  end
end
