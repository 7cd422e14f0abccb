# frozen_string_literal: true

module Bench
  # The best of all servers: a simulation of so many workers that take their requests from a single queue,
  # first come, first served, and lose no time between them.
  #
  # No worker idles while a request waits, and which worker a connection belongs to means nothing. The clients are those
  # of ClosedLoop: each takes the next job when it has had its answer, and pauses as long as the job says.
  class SingleQueue
    # @param servers [Integer] how many requests can be served at once
    # @param clients [Integer] how many there are, waiting, served or pausing
    def initialize(servers:, clients:)
      @servers = servers
      @clients = clients
    end

    # @param jobs [Array<Array(Numeric, Numeric)>] the pause before each request, and how long it is served
    # @return [Array<Numeric>] from arrival to completion of each, in the order of completion and in the unit of the jobs
    def latencies(jobs)
      run = Run.new(@servers, jobs)
      @clients.times { run.next_job(0) }
      run.step until run.over?
      run.latencies
    end

    # One pass over the jobs. Events are pairs of a time and a job, in the order of time; the job of an arrival is its
    # service time, that of a completion its arrival.
    class Run
      attr_reader :latencies

      def initialize(free, jobs)
        @free = free
        @jobs = jobs
        @taken = 0
        @arrivals = []
        @completions = []
        @queue = []
        @latencies = []
      end

      def over? = @arrivals.empty? && @completions.empty?

      # A client takes the next job, if there is one left, and pauses from `now` on.
      def next_job(now)
        return if @taken == @jobs.size

        pause, service = @jobs[@taken]
        @taken += 1
        add(@arrivals, now + pause, service)
      end

      # The next event. Of two at the same time, the completion is first: it frees a server for the arrival.
      def step
        completion_first? ? complete(*@completions.shift) : arrive(*@arrivals.shift)
      end

      private

      def completion_first?
        !@completions.empty? && (@arrivals.empty? || @completions.first.first <= @arrivals.first.first)
      end

      def arrive(now, service)
        @queue << [now, service]
        serve(now)
      end

      def complete(now, arrived)
        @latencies << (now - arrived)
        @free += 1
        next_job(now)
        serve(now)
      end

      def serve(now)
        return if @free.zero? || @queue.empty?

        arrived, service = @queue.shift
        @free -= 1
        add(@completions, now + service, arrived)
      end

      def add(events, time, job)
        place = events.bsearch_index { |other, _| other > time } || events.size
        events.insert(place, [time, job])
      end
    end
    private_constant :Run
  end
end
