# frozen_string_literal: true

require_relative "../version"

module Fastrack
  # The statistics under the names that Puma gives them in cluster mode (puma's docs/stats.md), for dashboards that read those.
  module PumaStats
    module_function

    # The Hash of Puma.stats_hash. The backlog of a worker is the number of its requests that wait for a thread, as in Puma's pool.
    #
    # @return [Hash{Symbol => Object}] in a process that belongs to no server: without a worker
    def stats
      found = Fastrack.stats || { pid: nil, workers: [] }
      build(started_at(found[:pid]), Fastrack.max_threads || 1, found[:workers].map { |worker| row_of(worker) })
    end

    # @param status [Hash{String => Object}] the monitor's /status.json
    # @return [Hash{Symbol => Object}]
    def of_status(status)
      now = Time.at(status["now"])
      rows = status["workers"].map do |one|
        one.values_at("nr", "pid", "generation", "requests", "in_app", "waiting").push(now - one["uptime"], one["state"] != "booting")
      end
      build(now - status["uptime"], status["threads"], rows)
    end

    # @param rows [Array<Array>] slot, pid, generation, requests, in the app, waiting, start, whether the worker is ready
    def build(started_at, threads, rows)
      newest = rows.map { |row| row[2] }.max || 1
      {
        started_at: text(started_at), workers: rows.size, phase: newest - 1, booted_workers: rows.count(&:last),
        old_workers: rows.count { |row| row[2] < newest }, worker_status: rows.map { |row| worker(row, threads) }, versions: versions
      }
    end

    def worker(row, threads)
      nr, pid, generation, requests, in_app, waiting, begun, ready = row
      busy = [in_app.to_i, threads].min
      {
        started_at: text(begun), pid: pid, index: nr, phase: generation - 1, booted: ready, last_checkin: text(Time.now),
        last_status: {
          backlog: waiting.to_i, running: threads, pool_capacity: threads - busy, busy_threads: busy + waiting.to_i, max_threads: threads,
          requests_count: requests.to_i
        }
      }
    end

    def row_of(worker)
      connections = worker[:connections].to_h
      [*worker.values_at(:nr, :pid, :generation, :requests), connections[:in_app], connections[:waiting], started_at(worker[:pid]), true]
    end

    # @return [Time] when a process was started; now where the system does not tell
    def started_at(pid)
      require_relative "../process/proc_stat"
      Time.now - ProcStat.age(pid)
    rescue SystemCallError, NameError
      Time.now
    end

    def text(time) = time.utc.strftime("%Y-%m-%dT%H:%M:%SZ")

    # @return [Hash] with Puma's own number where Puma is in the bundle
    def versions
      puma = defined?(::Puma::Const::PUMA_VERSION) ? ::Puma::Const::PUMA_VERSION : "fastrack #{VERSION}"
      { puma: puma, ruby: { engine: RUBY_ENGINE, version: RUBY_VERSION, patchlevel: RUBY_PATCHLEVEL } }
    end

    private_class_method :build, :worker, :row_of, :started_at, :text, :versions
  end
end
