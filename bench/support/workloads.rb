# frozen_string_literal: true

require_relative "workload"

module Bench
  # The workloads that bench/run knows.
  module Workloads
    SERVERS = %w[limit fastrack unicorn puma thin].freeze

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

    # Run when none is named.
    ALL = [
      Workload.new("hello-nginx", title: "Hello over a unix socket behind nginx",
                                  app: "hello.ru", front: :nginx, servers: SERVERS),
      Workload.new("hello-tcp", title: "Hello over TCP, a new connection each",
                                app: "hello.ru", front: :tcp, servers: SERVERS),
      Workload.new("browser", title: "Browser-like request, 10 KB response with 10 headers",
                              app: "browser.ru", front: :tcp, servers: SERVERS,
                              request: Request.new(headers: BROWSER_HEADERS)),
      Workload.new("post64k", title: "POST of 64 KB whose length is echoed",
                              app: "post.ru", front: :tcp, servers: SERVERS, request: POST),
      Workload.new("gc", title: "App that allocates, with pauses, behind nginx",
                         app: "allocate.ru", front: :nginx, think_ms: 70.0, stretch: 4,
                         servers: %w[fastrack fastrack-oobgc unicorn], settings: { concurrency: 4 }),
      Workload.new("memory", title: "Memory of master and 4 workers",
                             app: "hello.ru", front: :nginx, memory_after: [2_000, 50_000, 100_000],
                             servers: %w[fastrack unicorn puma], settings: { workers: 4 })
    ].freeze

    # Run when asked for by name: not every server keeps connections.
    EXTRA = [
      Workload.new("hello-keepalive", title: "Hello over TCP, kept-alive connections",
                                      app: "hello.ru", front: :tcp, servers: SERVERS - %w[unicorn], close: false)
    ].freeze

    def self.names = (ALL + EXTRA).map(&:name)

    # @return [Array<Workload>] those named, or all of the default ones
    # @raise [Options::Invalid] for a name that is none
    def self.named(names)
      return ALL if names.empty?

      names.map do |name|
        (ALL + EXTRA).find { |workload| workload.name == name } or
          raise Options::Invalid, "no workload #{name}; there are: #{self.names.join(", ")}"
      end
    end
  end
end
