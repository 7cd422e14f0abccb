# frozen_string_literal: true

require "support/streams_app"

RSpec.describe "C2 Puma 8's words for requests that wait" do
  include StreamsApp

  def serve_puma(words, **keywords) = serve_streams(threads: nil, workers: 1, files: { "puma.rb" => words }, options: { ConfigFile: "puma.rb", MaxWorkers: nil, MaxThreads: nil }, **keywords)

  it "max_io_threads is MaxStreams, and puma.mark_as_io_bound has a request hold no thread" do
    serve_puma("threads 2, 2\nmax_io_threads 4\n")
    ones = Array.new(4) { |number| request("/marked?#{number}").tap { await_streams(number + 1) } }
    others = waiting(2, "/wait?other")
    expect([streams, server.lines_of("waiting").size]).to eq([4, 6])
    more = request("/marked?more")
    await_waiting(1)
    expect(server.lines_of("waiting").size).to eq(6)
    go
    expect(statuses([*ones, *others, more])).to all(eq(200))
    await_streams(0)
  end

  it "a marked request keeps RequestTimeout" do
    serve_puma("threads 2, 2\nmax_io_threads 4\nrequest_timeout 1\n")
    expect(server.get("/marked?late").status).to eq(504)
  end

  it "is not in the env where there are no streams, or no puma.rb" do
    serve_puma("threads 2, 2\nmax_io_threads 0\n")
    expect(server.get("/env").body).to end_with("false")
  end
end
