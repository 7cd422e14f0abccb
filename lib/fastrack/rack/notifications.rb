# frozen_string_literal: true

require "active_support"
require "active_support/notifications"

module Fastrack
  # A middleware, to be used as the outermost one, that instruments each request for ActiveSupport ("request.fastrack") once the response
  # has left: docs/logs-and-stats.md. The class is loaded when an app names it.
  class Notifications
    EVENT = "request.fastrack"

    class << self
      # The number is looked up once in each process. The class keeps it, because Roda's `freeze_app` freezes the middleware. A single
      # assignment is safe with several threads.
      #
      # @return [Integer, nil] the worker's number; nil without a master
      def worker
        pid, nr = @worker
        return nr if pid == Process.pid

        nr = Fastrack.stats&.fetch(:workers)&.find { |worker| worker[:pid] == Process.pid }&.fetch(:nr)
        @worker = [Process.pid, nr]
        nr
      end
    end

    # @param app [#call]
    def initialize(app)
      @app = app
    end

    def call(env)
      callbacks = env["rack.after_reply"]
      return @app.call(env) unless callbacks && ActiveSupport::Notifications.notifier.listening?(EVENT)

      # If the app raises the client gets 500. The other values are read before the app runs, because Rails leaves a mounted engine's values
      # in env.
      payload = {
        method: env["REQUEST_METHOD"], path: env["PATH_INFO"], status: 500, duration: nil, queue_time: env["fastrack.queue_time"],
        worker: nil, request_id: env["HTTP_X_REQUEST_ID"]
      }
      started = now
      callbacks << -> { publish(payload, now - started) }
      @app.call(env).tap { |response| payload[:status] = response.first.to_i }
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def publish(payload, duration)
      finished = Time.now
      payload.update(duration: duration, worker: self.class.worker)
      send_out(EVENT, finished - duration, finished, ActiveSupport::Notifications.instrumenter.id, payload)
    end

    # Before ActiveSupport 7.1 a finished event cannot be published to subscribers that take an Event.
    def send_out(*event)
      notifications = ActiveSupport::Notifications
      return notifications.publish(*event) unless notifications.respond_to?(:publish_event)

      notifications.publish_event(notifications::Event.new(*event))
    end
  end
end
