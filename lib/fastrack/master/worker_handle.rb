# frozen_string_literal: true

require_relative "../worker/control_channel"
require_relative "../worker"
require_relative "worker_exit"

module Fastrack
  # The master's view of a worker.
  #
  #     booting --ready--> serving --stop--> stopping --> (reaped)
  #
  # A worker that is overdue, because it has reached its limit and its place could not be spared, goes on serving.
  class WorkerHandle
    attr_reader :nr, :pid, :generation, :channel

    # @return [WorkerRecord]
    attr_reader :record

    # @return [Float] monotonic seconds
    attr_reader :spawned_at

    # @param nr [Integer] its slot
    # @param channel [ControlChannel] the master's end
    # @param record [WorkerRecord]
    def initialize(nr, pid, generation, channel, record, spawned_at)
      @nr = nr
      @pid = pid
      @generation = generation
      @channel = channel
      @record = record
      @spawned_at = spawned_at
      @state = :booting
      @overdue = false
      @killed = false
      @draining = false
    end

    def serving?
      @state == :serving
    end

    def stopping?
      @state == :stopping
    end

    # Whether it serves beyond its limit.
    def overdue?
      @overdue
    end

    # Whether it was told to keep no connection; too early, maybe, for one that was booting.
    def draining?
      @draining
    end

    # Whether the master has killed it.
    def killed?
      @killed
    end

    # It has said that it is ready.
    def ready
      @state = :serving if @state == :booting
    end

    # What it has said since.
    #
    # @return [Array<String>] see ControlChannel
    def words
      @channel.heard || hang_up
    end

    # Whether it can still be heard; it cannot any more when it has ended, or is about to.
    def connected?
      !@channel.closed?
    end

    # It has asked to go.
    def answer(may_go)
      if may_go
        @channel.say(ControlChannel::GO)
        # For one that has given up waiting for the answer.
        stop
      else
        @overdue = true
        @channel.say(ControlChannel::STAY)
      end
    end

    # Has it finish the request that it is at, and go. By QUIT: with Heroku's recipe for Unicorn, workers ignore TERM, which
    # a platform sends to all processes at once, and wait for the master's word.
    def stop
      @state = :stopping
      signal(:QUIT)
    end

    # Has it keep no connection any longer, and, once it is to stop, serve all who have come by then.
    def drain
      @draining = true
      signal(Worker::DRAIN_SIGNAL)
    end

    def kill
      @killed = true
      @state = :stopping
      signal(:KILL)
    end

    # Has it open its log files anew.
    def reopen_logs
      signal(Worker::LOG_SIGNAL)
    end

    # @return [WorkerEnding, nil] nil while it runs
    def reap
      # By its pid alone: the children that the app has started in the master are the app's to wait for.
      pid, status = Process.wait2(@pid, Process::WNOHANG)
      ended(status) if pid
    rescue Errno::ECHILD
      # Some part of the app waits for all children, ours included, and was quicker.
      ended(nil)
    end

    # Has it reaped by Ruby, where no master will.
    def abandon
      @channel.close
      @record.release
      Process.detach(@pid)
    end

    private

    def ended(status)
      # What it said last may not have been read yet.
      ready if connected? && words.include?(ControlChannel::READY)
      @channel.close
      WorkerEnding.new(status, @state, @record)
    end

    def hang_up
      @channel.close
      []
    end

    # The pid is still its own: it stays taken until the worker is reaped.
    def signal(name)
      Process.kill(name, @pid)
    rescue Errno::ESRCH
      # Unless some part of the app has reaped it, which #reap is about to find out.
      nil
    end
  end
end
