# frozen_string_literal: true

require "json"
require "zlib"
require_relative "app"
require_relative "measurements/profile"
require_relative "request"
require_relative "workload"
require_relative "../apps/profiles_data"

module Bench
  # Workloads with the requests, connections and endpoints of public benchmarks' HTTP/1.1 profiles for frameworks. Each is run
  # on Rails and on Roda, with few clients and with many.
  module Profiles
    CLIENTS = [64, 512].freeze
    SERVERS = %w[fastrack-threads puma-threads].freeze
    HELLO = "Hello, World!"
    APPS = {
      "rails" => App.new("profiles_rails.ru", framework: true) { |body| body == "ok" },
      "roda" => App.new("profiles_roda.ru", framework: true) { |body| body == "ok" },
      "rack" => App.new("httparena.ru", framework: true) { |body| body == "ok" },
      "techempower" => App.new("../techempower/rack-fastrack/config.ru", framework: true) { |body| body == HELLO }
    }.freeze

    # @return [Measurements::Profile::Exchange]
    def self.exchange(path, weight = 1, **request, &right)
      Measurements::Profile::Exchange.new(Request.new(path: path, **request), weight, right)
    end

    # @return [Measurements::Profile::Exchange] a request that must get these bytes
    def self.exact(path, bytes, weight = 1, **request) = exchange(path, weight, **request) { |body| body == bytes }

    # @param gzip [Boolean] whether it must come compressed
    def self.json(count, gzip: false, weight: 1)
      headers = gzip ? { "Accept-Encoding" => "gzip, br" } : {}
      exchange("/json/#{count}?m=3", weight, headers: headers) do |body|
        plain(body) == ProfileData.json(count, 3) && gzip?(body) == gzip
      end
    end

    def self.rows(count, weight: 1)
      exchange("/async-db?min=10&max=50&limit=#{count}", weight) do |body|
        items = JSON.parse(body)["items"]
        items.size == count && items.all? { |item| item["price"].between?(10, 50) && item["tags"].size == 2 && item["rating"]["score"] }
      end
    end

    # @return [Measurements::Profile::Exchange] a file, which may come compressed
    def self.file(name)
      exchange("/static/#{name}", headers: { "Accept-Encoding" => "br;q=1, gzip;q=0.8" }) { |body| plain(body) == ProfileData.content(name) }
    end

    # @param count [Integer] of rows of the table `world`
    # @yieldparam numbers [Hash{Integer => Integer}] by their ids
    # @yieldreturn [Boolean] whether they are right, too
    def self.worlds(path, count, weight = 1)
      exchange(path, weight) do |body|
        worlds = JSON.parse(body)
        numbers = worlds.to_h { |world| world.values_at("id", "randomNumber") } if worlds.is_a?(Array)
        numbers&.size == count && numbers.to_a.flatten.all?(1..10_000) && (!block_given? || yield(numbers))
      end
    end

    # Whether the database has the numbers that an update has answered: of 500 rows that are read then, some are among the 500 updated ones.
    #
    # @return [Array<Measurements::Profile::Exchange>]
    def self.stored
      written = {}
      [worlds("/updates?queries=500", 500, 0) { |numbers| written.replace(numbers) },
       worlds("/queries?queries=500", 500, 0) { |numbers| numbers.slice(*written.keys).then { |again| again.any? && again <= written } }]
    end

    # A page with all rows of the table `fortune` and another one, in order and escaped.
    def self.fortunes
      exchange("/fortunes") do |body|
        ids, texts = body.force_encoding("UTF-8").scan(%r{<tr><td>(\d+)</td><td>([^<]+)</td></tr>}).transpose
        ids.map(&:to_i).sort == (0..12).to_a && texts == texts.sort && texts.last == "Größe" && texts.grep(/\A&lt;script&gt;/).one?
      end
    end

    def self.gzip?(body) = body.byteslice(0, 2) == "\x1f\x8b".b

    def self.plain(body) = gzip?(body) ? Zlib.gunzip(body) : body

    private_class_method :exchange, :exact, :json, :rows, :file, :worlds, :stored, :fortunes, :plain, :gzip?

    SUM = "/baseline11?a=13&b=42"
    PLAIN = { "Content-Type" => "text/plain" }.freeze
    BASELINE = [
      exact(SUM, "55"), exact(SUM, "75", verb: "POST", headers: PLAIN, body: "20"),
      exact(SUM, "75", verb: "POST", headers: PLAIN, body: "20", chunked: true)
    ].freeze
    # The requests of each profile; see Measurements::Profile for the rest.
    PROFILES = {
      "baseline" => [BASELINE, {}],
      "pipelined" => [[exact("/pipeline", "ok")], { pipeline: 16 }],
      "limited-conn" => [BASELINE, { per_connection: 10 }],
      "json" => [[1, 5, 10, 15, 25, 40, 50].map { |count| json(count) }, { per_connection: 25 }],
      "json-comp" => [[25, 40, 50].map { |count| json(count, gzip: true) }, { per_connection: 25 }],
      "async-db" => [[5, 10, 20, 35, 50].map { |count| rows(count) }, { per_connection: 25 }],
      "static" => [ProfileData::FILES.keys.map { |name| file(name) }, {}],
      "api-4" => [[exact(SUM, "55", 3), json(50, weight: 3), rows(50, weight: 2)], { per_connection: 5 }]
    }.freeze
    # The same for TechEmpower's tests. Requests without weight are asked once.
    TESTS = {
      "plaintext" => [[exact("/plaintext", HELLO)], { pipeline: 16 }],
      "json" => [[exact("/json", JSON.generate(message: HELLO))], {}],
      "db" => [[exchange("/db") { |body| JSON.parse(body).then { |world| world.keys == %w[id randomNumber] && world.values.all?(1..10_000) } }], {}],
      "queries" => [[worlds("/queries?queries=20", 20), *{ "" => 1, "0" => 1, "foo" => 1, "501" => 500 }.map { |word, count| worlds("/queries?queries=#{word}", count, 0) }], {}],
      "fortunes" => [[fortunes], {}],
      "updates" => [[worlds("/updates?queries=20", 20), *stored], {}]
    }.freeze
    private_constant :SUM, :PLAIN, :BASELINE

    # @param exchanges [Array<Measurements::Profile::Exchange>]
    # @param options [Hash] of Measurements::Profile
    def self.workload(app, profile, clients, exchanges, options)
      Workload.new("#{app}-#{profile}-#{clients}", title: "Profile #{profile} on #{app.capitalize}, #{clients} clients", app: APPS.fetch(app),
                   front: :tcp, close: false, request: Request.new(path: app == "techempower" ? "/plaintext" : "/pipeline"), servers: SERVERS, threads: 4,
                   database: true, stretch: 0.5, measurement: Measurements::Profile.new(exchanges, **options), settings: { concurrency: clients })
    end
    private_class_method :workload

    # By app and number of clients. The entries of bench/httparena and bench/techempower have these benchmarks' own numbers of clients.
    GROUPS = {
      **%w[rails roda].product(CLIENTS).to_h do |app, clients|
        ["profiles-#{app}-#{clients}", PROFILES.keys.map { |profile| workload(app, profile, clients, *PROFILES.fetch(profile)) }]
      end,
      "httparena" => %w[baseline json].product([512, 4_096]).map { |profile, clients| workload("rack", profile, clients, PROFILES.fetch(profile).first, {}) },
      "techempower" => [*TESTS.keys.map { |test| [test, 512] }, ["plaintext", 4_096]].map { |test, clients| workload("techempower", test, clients, *TESTS.fetch(test)) }
    }.freeze
    ALL = GROUPS.values.flatten.freeze
  end
end
