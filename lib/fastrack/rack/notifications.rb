# frozen_string_literal: true

require "active_support"
require "active_support/notifications"

module Fastrack
  # A middleware, the outermost one, that tells ActiveSupport's subscribers of each request ("request.fastrack") when its response has
  # left: docs/logs-and-stats.md. The server loads it when an app names it.
  class Notifications
    EVENT = "request.fastrack"

    # @param app [#call]
    def initialize(app)
      @app = app
    end

    def call(env)
      callbacks = env["rack.after_reply"]
      return @app.call(env) unless callbacks && ActiveSupport::Notifications.notifier.listening?(EVENT)

      # Where the app raises, that is what the client gets.
      status = 500
      started = now
      callbacks << -> { publish(env, status, now - started) }
      @app.call(env).tap { |response| status = response.first.to_i }
    end

    private

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    def publish(env, status, duration)
      finished = Time.now
      payload = {
        method: env["REQUEST_METHOD"], path: env["PATH_INFO"], status: status, duration: duration, queue_time: env["fastrack.queue_time"],
        worker: worker, request_id: env["HTTP_X_REQUEST_ID"]
      }
      send_out(EVENT, finished - duration, finished, ActiveSupport::Notifications.instrumenter.id, payload)
    end

    # Before 7.1 there is no way to tell those who want an event as one object of what is over.
    def send_out(*event)
      notifications = ActiveSupport::Notifications
      return notifications.publish(*event) unless notifications.respond_to?(:publish_event)

      notifications.publish_event(notifications::Event.new(*event))
    end

    # Looked up once in each process.
    #
    # @return [Integer, nil] its number; nil without a master
    def worker
      return @worker if @pid == Process.pid

      @pid = Process.pid
      @worker = Fastrack.stats&.fetch(:workers)&.find { |worker| worker[:pid] == @pid }&.fetch(:nr)
    end
  end
end
