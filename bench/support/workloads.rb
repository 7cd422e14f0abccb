# frozen_string_literal: true

require_relative "measurements/collections"
require_relative "measurements/idle_connections"
require_relative "measurements/memory"
require_relative "measurements/mix"
require_relative "measurements/overload"
require_relative "measurements/page"
require_relative "measurements/refork"
require_relative "measurements/reload"
require_relative "measurements/slow_clients"
require_relative "profiles"
require_relative "workload"

module Bench
  # The workloads that bench/run knows.
  module Workloads
    SERVERS = %w[fastrack unicorn puma].freeze
    # nginx answers by itself: what the same system calls and a parsed head cost without an app.
    HELLO_SERVERS = ["nginx", *SERVERS].freeze

    # Sixteen header lines with Host and Connection, as a desktop browser sends them.
    BROWSER_HEADERS = {
      "User-Agent" => "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) " \
                      "Chrome/126.0.0.0 Safari/537.36",
      "Accept" => "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp," \
                  "image/apng,*/*;q=0.8",
      "Accept-Encoding" => "gzip, deflate, br, zstd",
      "Accept-Language" => "en-GB,en;q=0.9,de;q=0.7",
      "Cache-Control" => "max-age=0",
      "Cookie" => "session=9f2d6c1e8b7a4f35a0c1; theme=dark; consent=necessary%2Canalytics",
      "Referer" => "http://localhost/articles?page=2",
      "Sec-CH-UA" => '"Chromium";v="126", "Not.A/Brand";v="24"',
      "Sec-CH-UA-Mobile" => "?0",
      "Sec-CH-UA-Platform" => '"Linux"',
      "Sec-Fetch-Dest" => "document",
      "Sec-Fetch-Mode" => "navigate",
      "Sec-Fetch-Site" => "same-origin",
      "Upgrade-Insecure-Requests" => "1"
    }.freeze

    POST = Request.new(verb: "POST", body: "x" * 65_536,
                       headers: { "Content-Type" => "application/octet-stream" })

    # The cost of a request.
    REQUESTS = [
      Workload.new("hello-nginx", title: "Hello over a unix socket behind nginx",
                                  app: "hello.ru", front: :nginx, servers: HELLO_SERVERS),
      Workload.new("hello-tcp", title: "Hello over TCP, a new connection each",
                                app: "hello.ru", front: :tcp, servers: HELLO_SERVERS),
      Workload.new("browser", title: "Browser-like request, 10 KB response with 10 headers",
                              app: "browser.ru", front: :tcp, servers: SERVERS,
                              request: Request.new(headers: BROWSER_HEADERS)),
      Workload.new("post64k", title: "POST of 64 KB whose length is echoed",
                              app: "post.ru", front: :tcp, servers: SERVERS, request: POST),
      Workload.new("file", title: "File of 10 MB, to be sent by sendfile(2)",
                           app: "file.ru", front: :tcp, servers: %w[nginx fastrack puma unicorn], settings: { concurrency: 8 }),
      Workload.new("gc", title: "App that allocates, with pauses, behind nginx",
                         app: "allocate.ru", front: :nginx, think_ms: 70.0, stretch: 4,
                         servers: %w[fastrack fastrack-oobgc unicorn], settings: { concurrency: 4 }),
      Workload.new("memory", title: "Memory of master and 4 workers", app: "hello.ru", front: :nginx,
                             measurement: Measurements::Memory.new([2_000, 50_000, 100_000]),
                             servers: %w[fastrack unicorn puma], settings: { workers: 4 })
    ].freeze

    # @return [Workload] one over kept-alive connections
    def self.kept_alive(name, title, app, measurement, **more)
      Workload.new(name, title: title, app: app, measurement: measurement, front: :tcp, close: false, **more)
    end
    private_class_method :kept_alive

    # @return [Workload] one whose requests take differently long
    def self.mix(name, title, app, slow, new_share: 0, **more)
      measurement = Measurements::Mix.new(slow, new_share: new_share)
      kept_alive(name, title, app, measurement, request: FAST, servers: MIX_SERVERS, **more)
    end
    private_class_method :mix

    # @return [Workload] the same for servers with five threads in each worker
    def self.threads(name, title, app, slow, at_once, **more)
      measurement = Measurements::Mix.new(slow, at_once: at_once)
      kept_alive(name, "#{title}: saturated, five threads in each worker", app, measurement, request: FAST, servers: THREADED_SERVERS, **more)
    end
    private_class_method :threads

    FAST = Measurements::Mix::FAST
    MIX_SERVERS = %w[fastrack fastrack-pinned puma unicorn].freeze
    THREADED_SERVERS = %w[fastrack-threads fastrack puma-threads].freeze
    BURN = "95 % of requests burn 2 ms of CPU, 5 % burn 40 ms"
    WAIT = "90 % of requests sleep for 20 ms, 10 % for 200 ms"
    HALF_NEW = "saturated, half of the clients connect anew for each"
    private_constant :FAST, :MIX_SERVERS, :THREADED_SERVERS, :BURN, :WAIT, :HALF_NEW

    # Kept, new, slow and idle connections. Pauses of 40 and 100 ms give 16 clients a load of 65 % and of 30 %.
    CONNECTIONS = [
      kept_alive("keepalive", "Hello over kept-alive TCP", "hello.ru", Measurements::Load.new("keepalive"),
                 stretch: 0.5, servers: %w[nginx fastrack puma unicorn]),
      kept_alive("browser-keepalive", "Browser-like request over kept-alive TCP", "browser.ru",
                 Measurements::Load.new("keepalive"), stretch: 0.5, request: Request.new(headers: BROWSER_HEADERS),
                                                      servers: %w[fastrack puma]),
      mix("mix-burn", "#{BURN}: saturated", "burn.ru", 5, stretch: 0.6, settings: { concurrency: 16 }),
      mix("mix-burn-65", "#{BURN}: 65 % load", "burn.ru", 5, stretch: 0.7, think_ms: 40.0, settings: { concurrency: 16 }),
      mix("mix-burn-30", "#{BURN}: 30 % load", "burn.ru", 5, stretch: 0.8, think_ms: 100.0, settings: { concurrency: 16 }),
      mix("mix-sleep", "#{WAIT}: saturated", "wait.ru", 10, stretch: 0.7, settings: { workers: 4 }),
      mix("mix-burn-new", "#{BURN}: #{HALF_NEW}", "burn.ru", 5, new_share: 0.5, settings: { concurrency: 16 }),
      mix("mix-sleep-new", "#{WAIT}: #{HALF_NEW}", "wait.ru", 10, new_share: 0.5, settings: { workers: 4 }),
      threads("threads-sleep", WAIT, "wait.ru", 10, 5, stretch: 0.7, settings: { workers: 4 }),
      threads("threads-burn", BURN, "burn.ru", 5, 1, stretch: 0.6, settings: { concurrency: 16 }),
      kept_alive("newcomer", "A lone client that connects anew, beside 64 kept ones on requests of 2 ms", "burn.ru",
                 Measurements::Newcomer.new, request: FAST, servers: MIX_SERVERS, settings: { concurrency: 64 }),
      kept_alive("slow", "Hello beside slow clients", "sizes.ru", Measurements::SlowClients.new,
                 # Each of its loads lasts for more than a second, so that a client can be seen to starve.
                 stretch: 0.25, servers: %w[fastrack puma unicorn]),
      # Requests that wait, so that the clients have the processors.
      Workload.new("overload", title: "Twice as many requests as can be served, from clients that leave after 2 s", app: "wait.ru", front: :tcp,
                               request: FAST, measurement: Measurements::Overload.new, settings: { workers: 4 },
                               servers: %w[fastrack fastrack-max-queue-time puma unicorn]),
      kept_alive("idle", "10,000 idle connections", "hello.ru", Measurements::IdleConnections.new(10_000),
                 stretch: 0.3, servers: %w[fastrack puma])
    ].freeze

    # @return [Workload] requests of 64 clients that come by 8 routers, as on Heroku
    def self.router(load, pause_ms)
      measurement = Measurements::Mix.new(5, routers: 8)
      kept_alive("router-#{load}", "#{BURN}: #{load} % load, by routers that keep connections", "burn.ru", measurement,
                 stretch: 4, think_ms: pause_ms, request: FAST, settings: { concurrency: 64 },
                 servers: %w[fastrack puma puma-closing fastrack-threads puma-threads puma-threads-closing])
    end
    private_class_method :router

    # A request takes 3.9 ms on average: 64 clients with these pauses have two workers work for half and for 70 % of the time.
    ROUTER = [router(50, 244.0), router(70, 170.0)].freeze

    # In turns: a machine's speed may change within minutes, and the tail with it.
    HEAP_TURNS = 4
    private_constant :HEAP_TURNS

    # @param stretch [Integer] the fewer requests come the longer: p99.9 is to be that of some thousand
    # @return [Workload] an app with a large heap, under this share of the load that two cores take
    def self.heap(name, load, share, stretch)
      kept_alive(name, "2 million live objects, 1 MB of garbage per request: #{load}", "heap.ru",
                 Measurements::Collections.new(turns: HEAP_TURNS), servers: %w[fastrack fastrack-oobgc fastrack-oobgc-auto],
                                                share: share, stretch: stretch.fdiv(HEAP_TURNS), settings: { concurrency: 16 })
    end
    private_class_method :heap

    # The effect of garbage collection on latencies.
    COLLECTIONS = [
      heap("gc-heap", "saturated", nil, 2), heap("gc-heap-70", "70 % load", 0.7, 3), heap("gc-heap-50", "50 % load", 0.5, 4),
      heap("gc-heap-30", "30 % load", 0.3, 6)
    ].freeze

    PAGE = App.new("page.ru", framework: true) do |body|
      body.scan("<article").size == 50 && body.rstrip.end_with?("</html>")
    end
    PAGE_SERVERS = %w[fastrack fastrack-threads puma-threads unicorn].freeze

    # @return [Workload] a page from PostgreSQL
    def self.page(name, title, path, measurement: Measurements::Page.new, stretch: 1, servers: PAGE_SERVERS)
      kept_alive(name, title, PAGE, measurement, request: Request.new(path: path), servers: servers, database: true, stretch: stretch,
                                                settings: { workers: 4 })
    end
    private_class_method :page
    private_constant :PAGE, :PAGE_SERVERS

    # Several threads in each worker, and what they cost.
    THREADS = [
      *CONNECTIONS.select { |workload| %w[threads-sleep threads-burn].include?(workload.name) },
      # In turns: a machine's speed may change by more within ten seconds than five threads cost.
      page("rails-page", "Rails page of 50 posts from PostgreSQL", "/", measurement: Measurements::Page.new(turns: 4), stretch: 0.5),
      page("rails-wait", "Rails page of 50 posts from PostgreSQL, with a query that waits for 20 ms", "/wait")
    ].freeze

    # Memory, when all workers are forked from one that has served, and when a HUP loads the app anew.
    REFORK = [
      page("refork", "Rails page of 50 posts from PostgreSQL, and the workers forked anew from one of them", "/",
           measurement: Measurements::Refork.new(4_500), servers: %w[fastrack unicorn]),
      # Long enough for the app to boot while it shares the cores with half of the load.
      page("reload", "Rails page of 50 posts from PostgreSQL, and a HUP under half of the load", "/",
           measurement: Measurements::Reload.new, servers: %w[fastrack], stretch: 3)
    ].freeze

    # Names that stand for several workloads.
    GROUPS = {
      "requests" => REQUESTS, "connections" => CONNECTIONS, "router" => ROUTER, "collections" => COLLECTIONS, "threads" => THREADS, "memory-shared" => REFORK,
      "profiles" => Profiles::ALL, **Profiles::GROUPS
    }.freeze
    # Run when none is named.
    ALL = (REQUESTS + CONNECTIONS).freeze
    EVERY = GROUPS.values.flatten.uniq.freeze
    private_constant :EVERY

    def self.names = EVERY.map(&:name) + GROUPS.keys

    # @return [Array<Workload>] those named, or all
    # @raise [Options::Invalid] for a name that is none
    def self.named(names)
      return ALL if names.empty?

      names.flat_map do |name|
        GROUPS.fetch(name) { EVERY.select { |workload| workload.name == name } }.tap do |found|
          raise Options::Invalid, "no workload #{name}; there are: #{self.names.join(", ")}" if found.empty?
        end
      end.uniq
    end
  end
end
