# frozen_string_literal: true

require "English"
require "socket"
require_relative "../error"
require_relative "outbox"

module Fastrack
  module Proxy
    # The proxy's program. It knows no Ruby: a gem for a platform has one for all Rubies, and bin/setup makes one for each system.
    module Program
      NAME = "fastrack-proxy"

      # Places of the program below lib/fastrack, the most specific first. RubyGems installs what it compiles elsewhere on the load path.
      PLACES = ["#{RUBY_VERSION[/\A\d+\.\d+/]}/#{NAME}", NAME].freeze

      module_function

      # @return [String] its path
      # @raise [Error] if it is not there
      def path
        folders = [File.expand_path("..", __dir__), *$LOAD_PATH.map { |folder| "#{folder}/fastrack" }]
        places = folders.flat_map { |folder| PLACES.map { |place| "#{folder}/#{place}" } }
        places.find { |place| File.file?(place) && File.executable?(place) } or
          raise Error, "the proxy is not built (#{NAME}): run bin/setup in a checkout, or reinstall the gem with `gem pristine rhebok-rs`"
      end

      # Runs a command of the program.
      #
      # @param order [Array(String, Array<#fileno>), nil] a line for it, and the descriptors that belong to it
      # @return [Array(String)] lines of its output
      # @raise [Error] with its reason when it fails
      def run(*arguments, order: nil)
        theirs, ours = UNIXSocket.pair
        output = IO.popen([path, *arguments], in: theirs)
        theirs.close
        send_order(ours, order) if order
        ours.close
        lines = output.readlines(chomp: true)
        output.close
        return lines if $CHILD_STATUS.success?

        raise Error, lines.filter_map { |line| line.delete_prefix("error ") if line.start_with?("error ") }.last || "#{NAME} has failed (#{$CHILD_STATUS})"
      ensure
        [theirs, ours].each { |socket| socket&.close }
      end

      def send_order(socket, order)
        outbox = Outbox.new(socket)
        outbox.add(*order)
        socket.wait_writable while outbox.flush
      end
      private_class_method :send_order
    end
  end
end
