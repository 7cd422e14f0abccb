# frozen_string_literal: true

require_relative "../../lib/fastrack/configuration"

RSpec.describe "Options", once: "texts and numbers" do
  let(:warnings) { StringIO.new }

  def configure(given = {}, environment = {})
    Fastrack::Configuration.new(given, environment: environment, output: StringIO.new, warnings: warnings)
  end

  it "A3 defaults" do
    found = Fastrack::Option::ALL.to_h { |option| [option.name, configure.public_send(option.word)] }
    expect(found).to include(ConfigFile: nil, Host: "0.0.0.0", Port: 9292, Path: nil, BackLog: Socket::SOMAXCONN, ReusePort: false,
                             MaxWorkers: 5, MaxRequestPerChild: 1000, MinRequestPerChild: nil, ClientTimeout: 300, OobGC: false,
                             MaxGCPerRequest: 5, MinGCPerRequest: nil, ChunkedTransfer: false, SpawnInterval: 0, ErrRespawnInterval: 1,
                             BeforeFork: nil, AfterFork: nil)
  end

  { Port: ["8080", 8080], BackLog: ["64", 64], MaxWorkers: ["3", 3], MaxRequestPerChild: ["0", 0],
    MinRequestPerChild: ["7", 7], Timeout: ["30", 30.0], MaxGCPerRequest: ["9", 9], MinGCPerRequest: ["2", 2],
    SpawnInterval: ["0.5", 0.5], ErrRespawnInterval: ["2", 2.0], MaxBodySize: ["1048576", 1_048_576],
    MaxRequestTarget: ["8192", 8192], MaxHeaderSize: ["8192", 8192], MaxHeaderFields: ["64", 64] }.each do |name, (text, value)|
    it "A2 #{name} is understood as a string" do
      expect(configure(name => text).public_send(Fastrack::Option::BY_NAME[name].word)).to eq(value)
    end
  end

  %i[ReusePort OobGC ChunkedTransfer].product([[true, [true, "true", "YES", "1", "On", 1]], [false, [false, "false", "No", "0", "OFF", 0]]])
                                     .each do |name, (value, words)|
    it "A2 B-#{name} is #{value} for #{words.join(", ")}, without case" do
      words.each { |word| expect(configure(name => word).public_send(Fastrack::Option::BY_NAME[name].word)).to be(value), word.inspect }
    end
  end

  it "A2 A3 names may be strings, Chunked_Transfer is another spelling, and nil is as good as nothing" do
    expect(configure("MaxWorkers" => "2", Chunked_Transfer: "1")).to have_attributes(max_workers: 2, chunked_transfer: true)
    expect(configure(MaxWorkers: nil, Path: nil, OobGC: nil).max_workers).to eq(5)
  end

  { MaxWorkers: ["x", "0", "-1", "1.5", true, [], ""], Port: ["http", "65536", "-1"], Timeout: ["30x", "0", "-1", "NaN", true],
    OobGC: ["maybe", 2, Object], Path: [true, "", "a\0b"], BeforeFork: ["echo", true], PathInfo: ["raw"],
    MaxRequestPerChild: ["1e3"], ErrRespawnInterval: ["soon"], MaxBodySize: ["1 XB"], MaxMemory: ["plenty"],
    MaxRequestTarget: ["0", "8x"], MaxHeaderSize: ["0", "2000000"], MaxHeaderFields: ["0", "1025"] }.each do |name, values|
    it "A2 a value that fits no type is an error that names #{name}" do
      values.each do |value|
        expect { configure(name => value) }
          .to raise_error(Fastrack::ConfigurationError, /\Aoption #{name} must be [^\n]+\z/), value.inspect
      end
    end
  end

  it "A2 an unknown option is warned of, with the nearest name where one is near" do
    configure(MaxWorker: 3, Timeuot: 1, Wibble: 1)
    said = ["MaxWorker; did you mean MaxWorkers?", "Timeuot; did you mean Timeout?", "Wibble"]
    expect(warnings.string.lines).to eq(said.map { |text| "fastrack: unknown option #{text}\n" })
  end

  it "A2 what rackup, Rails and Sinatra add for themselves is not warned of" do
    configure({ server: "fastrack", MaxWorkers: 1, environment: "development", pid: nil, AccessLog: [], config: "config.ru", daemonize: nil, warn: true, user_supplied_options: [], log_stdout: true,
                          DoNotReverseLookup: true, caching: nil, restart_cmd: "x", early_hints: nil })
    expect(warnings.string).to be_empty
  end

  rails = { Port: 3000, Host: "localhost", environment: "development", user_supplied_options: [] }.freeze
  from_rackup = { environment: "development", pid: nil, Port: 9292, Host: "localhost", AccessLog: [], config: "config.ru" }.freeze

  # What is given, the environment, and what comes of it: what rackup fills in by itself gives way to the environment.
  [[{}, { "WEB_CONCURRENCY" => "7" }, { max_workers: 7 }], [{ MaxWorkers: 2 }, { "WEB_CONCURRENCY" => "7" }, { max_workers: 2 }],
   [{}, { "WEB_CONCURRENCY" => "" }, { max_workers: 5 }], [{}, { "WEB_CONCURRENCY" => "0" }, { max_workers: 1 }],
   [{ MaxWorkers: 2 }, { "WEB_CONCURRENCY" => "auto" }, { max_workers: 2 }],
   [{}, { "PORT" => "4000" }, { port: 4000 }], [{ Port: 9292 }, { "PORT" => "4000" }, { port: 9292 }],
   [{ Port: 1 }, { "PORT" => "tcp://1" }, { port: 1 }], [{ Path: "app.sock" }, { "PORT" => "tcp://1" }, { path: "app.sock" }],
   [from_rackup, { "PORT" => "4000" }, { port: 4000 }], [{ **from_rackup, Port: "9292" }, { "PORT" => "4000" }, { port: 9292 }],
   [from_rackup, {}, { port: 9292 }], [rails, {}, { port: 3000 }], [rails, { "PORT" => "4000" }, { port: 4000 }],
   [{ **rails, user_supplied_options: [:Port] }, { "PORT" => "4000" }, { port: 3000 }]].each do |given, environment, found|
    it "A6 #{found} comes of #{given.slice(:MaxWorkers, :Port, :Path, :user_supplied_options)} and #{environment}#{" with rackup" if given[:config]}" do
      expect(configure(given, environment)).to have_attributes(found)
    end
  end

  it "A6 a variable that cannot be understood is an error that names it, and an option of 0 is one" do
    expect { configure({}, "WEB_CONCURRENCY" => "many") }
      .to raise_error(Fastrack::ConfigurationError, /\AWEB_CONCURRENCY must be a whole number, 1 or more; got "many"\z/)
    expect { configure(MaxWorkers: "0") }.to raise_error(Fastrack::ConfigurationError)
  end

  describe "draws" do
    # Every number of the range has to turn up, and nothing else: 500 draws miss one of 4 with p < 1e-61.
    def drawn(configuration, draw) = Array.new(500) { configuration.public_send(draw) }.uniq.sort

    { { MinRequestPerChild: 7, MaxRequestPerChild: 10 } => [7, 8, 9, 10], { MaxRequestPerChild: 10 } => [8, 9, 10],
      { MaxRequestPerChild: 4 } => [4], { MinRequestPerChild: 10, MaxRequestPerChild: 10 } => [10],
      { MinRequestPerChild: 12, MaxRequestPerChild: 10 } => [10], { MinRequestPerChild: 3, MaxRequestPerChild: 0 } => [0],
      # Never 0, which would mean no limit.
      { MinRequestPerChild: 0, MaxRequestPerChild: 2 } => [1, 2],
      { MinGCPerRequest: 2, MaxGCPerRequest: 5 } => [2, 3, 4, 5], { MaxGCPerRequest: 5 } => [5] }.each do |given, numbers|
      it "A3 are from #{numbers.join(", ")} with #{given}" do
        expect(drawn(configure(given), given.key?(:MaxGCPerRequest) ? :draw_gc_interval : :draw_request_limit)).to eq(numbers)
      end
    end
  end

  it "A2 A6 -O Key=Value, bare -O Key, WEB_CONCURRENCY and PORT reach a server that rackup starts" do
    server = Server.start(ru: Rackups::ENV_LINES, options: { Port: nil, PathInfo: "decoded", ChunkedTransfer: true },
                          env: { "WEB_CONCURRENCY" => "2", "PORT" => "0" })
    expect(server.port).not_to eq(9292)
    expect(server.await_workers(2).size).to eq(2)
    expect([server.get("/a%20b").body, server.get.headers["Transfer-Encoding"]]).to match([include('PATH_INFO="/a b"'), "chunked"])
  end
end
