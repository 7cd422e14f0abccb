# frozen_string_literal: true

require_relative "configuration"
require_relative "error"
require_relative "listeners"
require_relative "master"

module Fastrack
  # A server, from its options to its end. Handlers yield it to a block, through which it can be stopped.
  class Launcher
    # @return [Configuration]
    attr_reader :configuration
    # @return [Array<Listener>]
    attr_reader :listeners

    # Takes the options and listens. Everything that can be wrong with them is found here, before anything is forked, and
    # what is wrong with an option before anything is bound.
    #
    # @param app [#call] a Rack app
    # @param options [Hash] see Option
    # @raise [Error]
    def initialize(app, options = {})
      raise Error, "the app does not respond to call: #{app.inspect[0, 200]}" unless app.respond_to?(:call)

      @configuration = Configuration.new(options)
      load_engine
      @listeners = Listeners.open(@configuration)
      @master = Master.new(self, app)
    end

    # Serves until the server is told to stop.
    def run
      # A log is read while it is written, through a pipe too, and must not be lost with a worker that is killed.
      [$stdout, $stderr].each { |stream| stream.sync = true if stream.respond_to?(:sync=) }
      warm_up
      @master.run { announce }
    ensure
      @listeners.each(&:close)
    end

    # Has #run return once the requests that are being served are finished. Safe in a signal handler, from any thread, and
    # before #run.
    def stop
      @master.stop
    end
    alias shutdown stop

    private

    # Not before a server is wanted: to require the gem must be possible where it is not built.
    def load_engine
      require_relative "native"
    rescue LoadError => e
      raise Error, e.message.lines.first.chomp
    end

    # What the app has loaded is made old and compact, so that workers share the master's memory instead of copying it
    # when they first collect garbage.
    def warm_up
      return Process.warmup if Process.respond_to?(:warmup)

      # Objects are old, and no longer touched by most collections, once they have survived three.
      4.times { GC.start }
    end

    # One line for each address; a name with several addresses is listened on as one.
    def announce
      @listeners.map(&:to_s).uniq.each { |address| puts "Fastrack starts Listening on #{address} Pid:#{Process.pid}" }
      $stdout.flush
    end
  end
end
