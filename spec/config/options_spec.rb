# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../../lib/fastrack/configuration"
require "stringio"

RSpec.describe "Options" do
  let(:warnings) { StringIO.new }

  def configure(given = {}, environment = {})
    Fastrack::Configuration.new(given, environment: environment, output: StringIO.new, warnings: warnings)
  end

  # What rackup hands over when its user has chosen nothing.
  def from_rackup(given = {})
    { environment: "development", pid: nil, Port: 9292, Host: "localhost", AccessLog: [], config: "config.ru" }.merge(given)
  end

  it "A3 defaults" do
    found = Fastrack::Option::ALL.to_h { |option| [option.name, configure.public_send(option.word)] }
    expect(found).to include(
      ConfigFile: nil, Host: "0.0.0.0", Port: 9292, Path: nil, BackLog: Socket::SOMAXCONN, ReusePort: false,
      MaxWorkers: 5, MaxRequestPerChild: 1000, MinRequestPerChild: nil, Timeout: 300, OobGC: false,
      MaxGCPerRequest: 5, MinGCPerRequest: nil, ChunkedTransfer: false, SpawnInterval: 0, ErrRespawnInterval: 1,
      BeforeFork: nil, AfterFork: nil
    )
  end

  { Port: ["8080", 8080], BackLog: ["64", 64], MaxWorkers: ["3", 3], MaxRequestPerChild: ["0", 0],
    MinRequestPerChild: ["7", 7], Timeout: ["30", 30.0], MaxGCPerRequest: ["9", 9], MinGCPerRequest: ["2", 2],
    SpawnInterval: ["0.5", 0.5], ErrRespawnInterval: ["2", 2.0], MaxBodySize: ["1048576", 1_048_576],
    MaxRequestTarget: ["8192", 8192], MaxHeaderSize: ["8192", 8192], MaxHeaderFields: ["64", 64] }.each do |name, (text, value)|
    it "A2 #{name} is understood as a string" do
      expect(configure(name => text).public_send(Fastrack::Option::BY_NAME[name].word)).to eq(value)
    end
  end

  it "B-timeout-as-string Timeout=30 is thirty seconds" do
    expect(configure(Timeout: "30").timeout).to eq(30)
  end

  %i[ReusePort OobGC ChunkedTransfer].each do |name|
    it "A2 #{name} is on for true, yes, 1 and on, without case, and for the bare key" do
      [true, "true", "YES", "1", "On", 1].each do |value|
        expect(configure(name => value).public_send(Fastrack::Option::BY_NAME[name].word)).to be(true), value.inspect
      end
    end

    it "B-#{name} is off for false, no, 0 and off" do
      [false, "false", "No", "0", "OFF", 0].each do |value|
        expect(configure(name => value).public_send(Fastrack::Option::BY_NAME[name].word)).to be(false), value.inspect
      end
    end
  end

  it "A3 Chunked_Transfer is another spelling of ChunkedTransfer" do
    expect(configure(Chunked_Transfer: "1").chunked_transfer).to be(true)
  end

  it "A2 names may be strings" do
    expect(configure("MaxWorkers" => "2").max_workers).to eq(2)
  end

  { MaxWorkers: ["x", "0", "-1", "1.5", true, [], ""], Port: ["http", "65536", "-1"], Timeout: ["30s", "0", "-1", "NaN", true],
    OobGC: ["maybe", 2, Object], Path: [true, "", "a\0b"], BeforeFork: ["echo", true], PathInfo: ["raw"],
    MaxRequestPerChild: ["1e3"], ErrRespawnInterval: ["soon"], MaxBodySize: ["1 MB"],
    MaxRequestTarget: ["0", "8k"], MaxHeaderSize: ["0", "2000000"], MaxHeaderFields: ["0", "1025"] }.each do |name, values|
    it "A2 a value that fits no type is an error that names #{name}" do
      values.each do |value|
        expect { configure(name => value) }
          .to raise_error(Fastrack::ConfigurationError, /\Aoption #{name} must be [^\n]+\z/), value.inspect
      end
    end
  end

  it "A2 nil is as good as nothing" do
    expect(configure(MaxWorkers: nil, Path: nil, OobGC: nil).max_workers).to eq(5)
  end

  it "A2 an unknown option is warned of, with the nearest name that there is" do
    configure(MaxWorker: 3, max_workers: 3, Timeuot: 1)
    expect(warnings.string.lines).to eq([
      "fastrack: unknown option MaxWorker; did you mean MaxWorkers?\n",
      "fastrack: unknown option max_workers; did you mean MaxWorkers?\n",
      "fastrack: unknown option Timeuot; did you mean Timeout?\n"
    ])
  end

  it "A2 an unknown option that is near to nothing is warned of without a guess" do
    configure(Wibble: 1)
    expect(warnings.string).to eq("fastrack: unknown option Wibble\n")
  end

  it "A2 what rackup, Rails and Sinatra add for themselves is not warned of" do
    configure(from_rackup(server: "fastrack", daemonize: nil, warn: true, user_supplied_options: [], log_stdout: true,
                          DoNotReverseLookup: true, caching: nil, restart_cmd: "x", early_hints: nil))
    expect(warnings.string).to be_empty
  end

  it "A6 WEB_CONCURRENCY sets MaxWorkers when it is not given" do
    expect(configure({}, "WEB_CONCURRENCY" => "7").max_workers).to eq(7)
    expect(configure({ MaxWorkers: 2 }, "WEB_CONCURRENCY" => "7").max_workers).to eq(2)
    expect(configure({}, "WEB_CONCURRENCY" => "").max_workers).to eq(5)
  end

  it "A6 PORT sets Port when it is not given" do
    expect(configure({}, "PORT" => "4000").port).to eq(4000)
    expect(configure({ Port: 9292 }, "PORT" => "4000").port).to eq(9292)
  end

  it "A6 the port that rackup fills in gives way to PORT, one that its user chose does not" do
    expect(configure(from_rackup, "PORT" => "4000").port).to eq(4000)
    expect(configure(from_rackup(Port: "9292"), "PORT" => "4000").port).to eq(9292)
    expect(configure(from_rackup).port).to eq(9292)
  end

  it "A6 Rails tells which of host and port were chosen" do
    rails = { Port: 3000, Host: "localhost", environment: "development", user_supplied_options: [] }
    expect(configure(rails).port).to eq(3000)
    expect(configure(rails, "PORT" => "4000").port).to eq(4000)
    expect(configure(rails.merge(user_supplied_options: [:Port]), "PORT" => "4000").port).to eq(3000)
  end

  it "A6 a variable that cannot be understood is an error that names it" do
    expect { configure({}, "WEB_CONCURRENCY" => "many") }
      .to raise_error(Fastrack::ConfigurationError, /\AWEB_CONCURRENCY must be a whole number, 1 or more; got "many"\z/)
  end

  it "A6 a variable that does not count need not be understood" do
    expect(configure({ MaxWorkers: 2 }, "WEB_CONCURRENCY" => "auto").max_workers).to eq(2)
    expect(configure({ Port: 1 }, "PORT" => "tcp://1").port).to eq(1)
    expect(configure({ Path: "app.sock" }, "PORT" => "tcp://1").path).to eq("app.sock")
  end

  it "A6 WEB_CONCURRENCY=0 is one worker, and an option of 0 is an error" do
    expect(configure({}, "WEB_CONCURRENCY" => "0").max_workers).to eq(1)
    expect { configure(MaxWorkers: "0") }.to raise_error(Fastrack::ConfigurationError)
  end

  describe "draws" do
    # Every number of the range has to turn up, and nothing else: 500 draws miss one of 4 with p < 1e-61.
    def drawn(configuration, draw)
      Array.new(500) { configuration.public_send(draw) }.uniq.sort
    end

    it "A3 the request limit is drawn from Min to Max, both included" do
      expect(drawn(configure(MinRequestPerChild: 7, MaxRequestPerChild: 10), :draw_request_limit)).to eq([7, 8, 9, 10])
    end

    it "A3 the request limit is Max with no Min, and where Min is not less" do
      expect(drawn(configure(MaxRequestPerChild: 10), :draw_request_limit)).to eq([10])
      expect(drawn(configure(MinRequestPerChild: 12, MaxRequestPerChild: 10), :draw_request_limit)).to eq([10])
    end

    it "A3 with MaxRequestPerChild 0 there is no limit, whatever Min is" do
      expect(drawn(configure(MinRequestPerChild: 3, MaxRequestPerChild: 0), :draw_request_limit)).to eq([0])
    end

    it "A3 a Min of 0 never draws 0, which would mean no limit" do
      expect(drawn(configure(MinRequestPerChild: 0, MaxRequestPerChild: 2), :draw_request_limit)).to eq([1, 2])
    end

    it "A3 requests between collections are drawn likewise" do
      expect(drawn(configure(MinGCPerRequest: 2, MaxGCPerRequest: 5), :draw_gc_interval)).to eq([2, 3, 4, 5])
      expect(drawn(configure(MaxGCPerRequest: 5), :draw_gc_interval)).to eq([5])
    end

    it "A3 all numbers are equally likely" do
      configuration = configure(MinRequestPerChild: 1, MaxRequestPerChild: 4)
      counts = Array.new(8000) { configuration.draw_request_limit }.tally.values_at(1, 2, 3, 4)
      # 2,000 expected of each; 200 is more than five standard deviations (38.7).
      expect(counts).to all(be_within(200).of(2000))
    end
  end

  describe "from the command line" do
    it "A2 -O Key=Value and bare -O Key reach the server" do
      server = Server.start(ru: Rackups::ENV_LINES, options: { MaxWorkers: 2, PathInfo: "decoded", ChunkedTransfer: true })
      server.await_workers(2)
      expect(server.get("/a%20b").body).to include('PATH_INFO="/a b"')
      expect(server.get.headers["Transfer-Encoding"]).to eq("chunked")
    end

    it "A2 an ill-typed option ends it with one line and status 1, with nothing bound" do
      server = Server.fail_to_start(ru: Rackups::PID, unix: true, options: { MaxWorkers: "many" })
      expect(server.log).to eq(%(fastrack: option MaxWorkers must be a whole number, 1 or more; got "many"\n))
      expect(server.status.exitstatus).to eq(1)
      expect(File).not_to exist(File.join(server.dir, "server.sock"))
    end

    it "A2 an unknown option is warned of and the server starts", :quiet do
      server = Server.start(ru: Rackups::PID, options: { MaxWorker: 1 })
      expect(server.log).to include("fastrack: unknown option MaxWorker; did you mean MaxWorkers?\n")
    end

    it "A6 WEB_CONCURRENCY and PORT are heard by a server started through rackup" do
      server = Server.start(ru: Rackups::PID, options: { Port: nil }, env: { "WEB_CONCURRENCY" => "2", "PORT" => "0" })
      expect(server.port).not_to eq(9292)
      expect(server.await_workers(2).size).to eq(2)
    end
  end
end
