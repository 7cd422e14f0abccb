# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/kept_helpers"

RSpec.describe "New clients" do
  # Clients that ask one request after the other on connections that they keep, for as long as the block runs.
  def under_load(count, path)
    over = false
    threads = Array.new(count) do
      one = peer
      Thread.new { one.get(path) until over }
    end
    eventually { calls.size > 3 * count }
    yield
  ensure
    over = true
    threads.each(&:join)
  end

  # Somebody else's file, so that each call takes a while.
  let(:slow_app) do
    <<~RUBY
      require #{File.expand_path("../support/http_journal", __dir__).inspect}
      journal = HttpJournal.new
      run ->(env) { journal.write("\#{Process.pid} \#{env["PATH_INFO"]}"); sleep 0.01; [200, { "content-type" => "text/plain" }, ["x"]] }
    RUBY
  end

  [1, 2].each do |workers|
    it "are served while those that are here already keep #{workers} worker(s) busy without a pause" do
      serve(slow_app, options: { "MaxWorkers" => workers })
      under_load(12, "/kept") do
        times = Array.new(5) { seconds { expect(server.get("/new").status).to eq(200) } }
        # Not much later than any other: 12 of 10 ms each are before it, at most twice.
        expect(times.max).to be < 1
      end
    end
  end

  it "are served while another client sends without a pause" do
    serve_kept(options: { MaxBodySize: 4_000_000_000 })
    upload = peer
    over = false
    upload.write("POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000000\r\n\r\n")
    writer = Thread.new { upload.write("x" * 4_000_000) until over }
    times = Array.new(10) { seconds { expect(server.get("/pid").status).to eq(200) } }
    expect(times.max).to be < 1
  ensure
    over = true
    writer.join
  end
end
