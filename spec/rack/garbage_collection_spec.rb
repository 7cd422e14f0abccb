# frozen_string_literal: true

require "support/http_helpers"
require "support/http_representative"

RSpec.describe "the server under a garbage collector that is on the loose" do
  include HttpRepresentative

  # Parses whole files to make a message longer, which takes half a minute when each allocation collects garbage.
  environment = { "RUBYOPT" => "--disable=error_highlight" }
  collecting = File.expand_path("../support/http_apps/collecting", __dir__)

  { stress: "GC.stress", compact: "GC.compact", auto_compact: "GC.auto_compact" }.each do |mode, name|
    [false, true].each do |chunked|
      context [name, *("in chunks" if chunked)].join(", ") do
        before(:context) do
          ru = "require #{collecting.inspect}\n" << HttpApps.ru(:proxied, middleware: ["HttpApps::Collecting, #{mode.inspect}"])
          serve(ru, options: { "ChunkedTransfer" => chunked, "EarlyHints" => true }, env: environment)
        end

        it "gives every kind of response as it always does, and the worker lives (#{name})" do
          2.times { expect_representative_requests }
          expect_worker_alive
          expect(server.log).not_to match(/\[BUG\]|panicked|SEGV/)
        end
      end
    end
  end

  it "is so for all servers where FASTRACK_GC says so", skip: ("it does not" unless GcMode.name) do
    serve(<<~RUBY)
      modes = -> { [GC.stress, GC.auto_compact].inspect }
      run(lambda do |_|
        called = modes.call
        [200, {}, Enumerator.new { |parts| parts << called << modes.call }]
      end)
    RUBY
    expect(server.get("/").body).to eq({ "stress" => "[false, false][true, false]", "compact" => "[false, true][false, true]" }.fetch(GcMode.name))
  end

  context "at peace" do
    before(:context) { serve(HttpApps.ru(:proxied), options: { "EarlyHints" => true }) }

    it "gives every kind of response, so that the others can be compared to it" do
      expect_representative_requests
    end
  end
end
