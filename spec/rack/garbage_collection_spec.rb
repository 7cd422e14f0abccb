# frozen_string_literal: true

require "support/http_representative"

RSpec.describe "the server under a garbage collector that is on the loose" do
  include HttpRepresentative

  # Parses whole files to make a message longer, which takes half a minute when each allocation collects garbage.
  environment = { "RUBYOPT" => "--disable=error_highlight" }
  collecting = File.expand_path("../support/http_apps/collecting", __dir__)

  # In chunks and without, by turns.
  { stress: "GC.stress", compact: "GC.compact", auto_compact: "GC.auto_compact" }.each_with_index do |(mode, name), index|
    it "gives every kind of response as it always does, and the worker lives (#{name})" do
      ru = "require #{collecting.inspect}\n" << HttpApps.ru(:proxied, middleware: ["HttpApps::Collecting, #{mode.inspect}"])
      serve(ru, options: { "ChunkedTransfer" => index.odd?, "EarlyHints" => true }, env: environment)
      2.times { expect_representative_requests }
      expect_worker_alive
      expect(server.log).not_to match(/\[BUG\]|panicked|SEGV/)
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
end
