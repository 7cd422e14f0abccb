# frozen_string_literal: true

require "active_support"
require "active_support/notifications"

module Fastrack
  # A middleware, the outermost one, that tells ActiveSupport's subscribers of each request ("request.fastrack") when its response has
  # left: docs/logs-and-stats.md. The server loads it when an app names it.
  class Notifications
    EVENT = "request.fastrack"

    class << self
      # Looked up once in each process, by one assignment: several threads ask. And not in an object, which `freeze_app` freezes.
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

      # Where the app raises, 500 is what the client gets. The rest is noted first: Rails leaves in env what a mounted engine saw.
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

    # Before 7.1 there is no way to tell those who want an event as one object of what is over.
    def send_out(*event)
      notifications = ActiveSupport::Notifications
      return notifications.publish(*event) unless notifications.respond_to?(:publish_event)

      notifications.publish_event(notifications::Event.new(*event))
    end
  end
end
