# frozen_string_literal: true

require_relative "../../lib/fastrack/configuration"

RSpec.describe "Numbers that are too large", once: "options" do
  include ReexecHelpers

  def configure(given) = Fastrack::Configuration.new(given, environment: {}, output: StringIO.new, warnings: StringIO.new)

  # What each numeric option takes as its largest.
  numeric = Fastrack::Option::ALL.filter_map do |option|
    largest = [1_000_000_000_000_000, 4_294_967_295, 2_147_483_647, 1_000_000_000, 1_048_576, 1_000_000, 65_535, 1024, 1000, 512, 64]
              .find { |number| option.coerce(number) == number rescue false } # rubocop:disable Style/RescueModifier
    [option.name, largest] if largest
  end.to_h.except(:Umask, :MaxThreads)

  it "are the native extension's where it has one" do
    require_relative "../../lib/fastrack/native"
    expect(numeric.values_at(:MaxWorkers, :MaxStreams)).to eq([Fastrack::Scoreboard::MAX_WORKERS, Fastrack::Scoreboard::MAX_STREAMS])
  end

  it "are known of every numeric option" do
    expect(numeric.size).to be > 25
    expect(numeric).to include(MaxWorkers: 512, SpawnInterval: 1_000_000_000, MaxMemory: 1_000_000_000_000_000, MaxBodySize: 1_000_000_000_000_000)
  end

  numeric.each do |name, largest|
    it "A2 are an error that names #{name}" do
      [largest + 1, 2**64, "1#{"0" * 30}"].each do |value|
        expect { configure(name => value) }.to raise_error(Fastrack::ConfigurationError, /\Aoption #{name} must be [^\n]+; got /), value.inspect
      end
    end
  end

  it "A2 are errors in the settings of an address, too" do
    %w[backlog tcp_defer_accept rcvbuf sndbuf delay tries].each do |setting|
      expect { configure(Listen: "tcp://127.0.0.1:0?#{setting}=#{10**30}") }.to raise_error(Fastrack::ConfigurationError, /#{setting} must be/)
    end
  end

  it "A3 are just so taken where they are the largest" do
    limits = numeric.except(:Port, :BackLog, :MaxWorkers, :MaxHeaderFields, :SpawnInterval, :DrainDelay)
    server = start(ru: Rackups::PID, options: { **limits, OobGC: true })
    expect([server.get.status, server.post("/", "body").status]).to eq([200, 200])
    server.renew(server.await_workers(2))
    expect(server.get.status).to eq(200)
  end
end
