# frozen_string_literal: true

require "io/console"
require_relative "../log"

module Fastrack
  # The status of a server as text. A terminal gets lines that fit, a file or pipe whole ones.
  class StatusTable
    # Columns of a terminal that does not tell its width.
    COLUMNS = 80

    # Head of the table. In 80 columns a request has no room beside it, and has a line of its own.
    HEAD = " nr     pid state      cpu   req/s  requests   in slot  memory     own      up"

    COLOURS = { "busy" => 33, "idle" => 32, "serving" => 32, "stopping" => 35, "lingering" => 35, "booting" => 36, "draining" => 35, "dead" => 31, "down" => 31, "bad" => 31 }.freeze

    # Names of errors, and the keys of their counts in the status.
    ERRORS = { "5xx" => %w[responses 5xx], "timeouts" => %w[timed_out], "refused" => %w[refused], "overloaded" => %w[overloaded],
               "dropped" => %w[dropped], "aborted" => %w[aborted] }.freeze

    # Causes that need no attention.
    ORDERLY = %w[request_limit reload refork none].freeze

    # Causes that the text of an exit does not tell: the worker has exited in good order.
    CAUSES = { "memory" => ", because of its memory", "worker_timeout" => ", stuck outside of requests" }.freeze

    CLEAR = "\e[H\e[J"

    # @param output [IO] a terminal gets colours
    def initialize(output = $stdout)
      @output = output
      @colours = output.tty? && ENV["NO_COLOR"].to_s.empty?
    end

    # @param before [Hash] an earlier status, for the rates
    # @param now [Hash]
    # @param clear [Boolean] whether the text replaces the terminal's content
    # @return [String]
    def text(before, now, clear: false)
      @seconds = [now["now"] - before["now"], 0.001].max
      @columns = columns
      old = before["workers"].to_h { |worker| [worker["pid"], worker] }
      rows = now["workers"].flat_map { |worker| [row(worker, old[worker["pid"]] || {}), *request(worker)] }
      lines = [title(now), summary(before, now), *errors(before, now), "", HEAD, *rows, *mold(now["mold"]), *mold(now["generation_0"]), *saving(now["refork_saving"]), *proxy(now["proxy"]), *exits(now)]
      "#{CLEAR if clear && @colours}#{lines.join("\n")}\n"
    end

    private

    def title(now)
      phase = now["phase"]
      line = "Fastrack #{now["version"]}  pid #{now["pid"]}  #{phase}  #{"generation #{now["generation"]}  " if now["generation"]}up #{time(now["uptime"])}"
      painted("#{line}#{waiting(now)}", phase => phase, /\d+ waiting\z/ => "bad")
    end

    # Number of clients that wait.
    def waiting(now)
      count = now.dig("connections", "waiting").to_i
      count.positive? ? "  #{count} waiting" : ""
    end

    # Counts of errors, in all and since the last check; nil without errors.
    def errors(before, now)
      counts = ERRORS.filter_map do |name, place|
        count = now.dig(*place).to_i
        more = count - before.dig(*place).to_i
        "#{name} #{count}#{" (#{more} now)" if more.positive? && before["pid"] == now["pid"]}" if count.positive?
      end
      [painted("errors in all: #{counts.join("  ")}", /\S+ \d+ \(\d+ now\)/ => "bad")] unless counts.empty?
    end

    def summary(before, now)
      workers = now["workers"]
      processes = [now["master"], now["mold"], now["generation_0"], now["proxy"], *workers].compact
      memory = bytes(processes.sum { |one| one["pss"].to_i })
      states = workers.map { |worker| worker["state"] }.tally.map { |state, count| "#{count} #{state}" }.join(", ")
      queues = now["listeners"].map { |one| [one["backlog"] || "?", one["limit"]].compact.join("/") }.join(" ")
      parts = ["workers #{workers.size}#{" of #{now["workers_wanted"]}" if now["workers_wanted"]}: #{states}",
               ("#{rate(before["requests"], now["requests"])} req/s" if now["requests"]),
               (Log.count(now["streams"], "stream") if now["streams"].to_i.positive?), ("backlog #{queues}" unless queues.empty?), "memory #{"at least " if processes.any? { |one| unknown?(one) }}#{memory}"]
      waits = now["listeners"].any? { |one| one["backlog"].to_i.positive? }
      painted(parts.compact.join("  "), (full?(now) ? /\d+ busy/ : nil) => "busy", (waits ? /backlog \S+(?: \S+)*/ : nil) => "bad")
    end

    # Whether all threads have requests.
    def full?(now)
      room = now["threads"].to_i * now["workers"].size
      room.positive? && now.dig("connections", "in_app").to_i >= room
    end

    def row(worker, old)
      busy = old["cpu_seconds"] && worker["cpu_seconds"] && ((worker["cpu_seconds"] - old["cpu_seconds"]) / @seconds * 100).round
      state = worker["state"].to_s
      fixed = [worker["nr"].to_s.rjust(3), worker["pid"].to_s.rjust(7), state.ljust(9),
               (busy ? "#{busy.clamp(0, 999)}%" : "").rjust(4), rate(old["requests"], worker["requests"]).rjust(7),
               worker["requests"].to_s.rjust(9), worker["slot_requests"].to_s.rjust(9), memory(worker).rjust(7),
               bytes(worker["private"]).rjust(7), time(worker["uptime"]).rjust(7)]
      painted(fixed.join(" ").rstrip, /(?<= )#{Regexp.escape(state)}(?= |\z)/ => state)
    end

    # Line of a process that forks workers.
    def mold(mold)
      return if mold.nil?

      fit("mold #{mold["pid"].to_s.rjust(6)} generation #{mold["generation"]} after #{mold["requests"]} requests".ljust(57) +
          [memory(mold), bytes(mold["private"])].map { |size| size.rjust(8) }.join)
    end

    # Line of what a refork would save.
    def saving(count) = count && fit("refork would save up to #{bytes(count)}")

    # Counters of the proxy that are always told, and others that are told where they are not 0.
    PROXY = { "open" => "open", "requests" => "requests", "h2_requests" => "of HTTP/2", "files" => "files", "handshakes" => "handshakes" }.freeze
    PROXY_REST = { "streams" => "streams", "tunnels" => "sockets", "handshake_errors" => "failed handshakes", "worker_died" => "502 (worker died)",
                   "no_worker" => "502 (no worker)", "bad_response" => "502 (bad response)", "shortage" => "503 (shortage)" }.freeze

    # Seconds before the end of a certificate at which it is worth attention.
    DAY = 86_400
    SOON = 14 * DAY
    private_constant :PROXY, :PROXY_REST, :DAY, :SOON

    # Lines of the proxy, and of those that linger.
    def proxy(proxy)
      return if proxy.nil?

      counts = PROXY.map { |name, word| "#{proxy[name].to_i} #{word}" } +
               PROXY_REST.filter_map { |name, word| "#{proxy[name]} #{word}" if proxy[name].to_i.positive? }
      counts.unshift(proxy["state"]) unless proxy["state"] == "serving"
      counts << memory(proxy) if proxy["rss"]
      counts += [*certificate(proxy["certificate_not_after"])]
      [painted("proxy #{proxy["pid"].to_s.rjust(5)} #{counts.join(", ")}", /certificate (?:ends|expired)[^,]*/ => "bad"),
       *Array(proxy["lingering"]).map { |one| fit("proxy #{one["pid"].to_s.rjust(5)} lingering, #{one["streams"].to_i} streams, #{one["tunnels"].to_i} sockets") }]
    end

    def certificate(seconds)
      return if seconds.nil?

      at, left = Time.at(seconds).utc.strftime("%Y-%m-%d"), seconds - Time.now.to_i
      return "certificate expired on #{at}" if left.negative?

      left < SOON ? "certificate ends in #{Log.count(left / DAY, "day")} (#{at})" : "certificate until #{at}"
    end

    def request(worker)
      fit("#{" " * 12}#{time(worker["request_seconds"])} #{worker["request"]}") if worker["request"]
    end

    def exits(now)
      last = Array(now["last_exits"]).reject { |one| ORDERLY.include?(one["cause"]) }.first(3)
      return [] if last.empty?

      ["", "last exits", *last.map { |one| fit(" #{moment(one["at"])} worker #{one["worker"]} #{one["text"]}#{CAUSES[one["cause"]]}") }]
    end

    def rate(before, now) = before && now && now >= before ? format("%.1f", (now - before) / @seconds) : ""

    # Whether the kernel does not tell the process's PSS.
    def unknown?(process) = process["rss"] && process["pss"].nil?

    def memory(process) = unknown?(process) ? "?" : bytes(process["pss"])

    def bytes(count)
      return "" unless count

      megabytes = count / 1_048_576.0
      megabytes >= 10_000 ? format("%.1f GB", megabytes / 1024) : format("%d MB", megabytes.round)
    end

    def time(seconds)
      return "" unless seconds
      return format("%.1fs", seconds) if seconds < 60

      minutes = seconds.to_i / 60
      return "#{minutes}m" if minutes < 120

      minutes < 2880 ? "#{minutes / 60}h#{(minutes % 60).to_s.rjust(2, "0")}m" : "#{minutes / 1440}d"
    end

    # A time in the log's format.
    def moment(seconds) = Time.at(seconds).utc.strftime("%Y-%m-%dT%H:%M:%SZ")

    def fit(line) = @columns && line.length > @columns ? "#{line[0, @columns - 3]}..." : line

    # @param colours [Hash{Regexp, String => String}] names of COLOURS by parts of the line; a nil part is ignored
    def painted(line, colours)
      colours.reduce(fit(line)) { |text, (part, name)| part ? text.gsub(part) { |found| colour(name, found) } : text }
    end

    # @return [Integer, nil] nil: the output is no terminal
    def columns
      return unless @output.tty?

      wide = @output.winsize.last
      wide.positive? ? wide : COLUMNS
    rescue SystemCallError
      COLUMNS
    end

    def colour(name, text)
      code = COLOURS[name]
      @colours && code ? "\e[#{code}m#{text}\e[0m" : text
    end
  end
end
