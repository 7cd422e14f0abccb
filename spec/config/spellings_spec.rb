# frozen_string_literal: true

require_relative "../../lib/fastrack"
require_relative "../../lib/fastrack/configuration"
require "stringio"

# What users write who know another server, or only one of the two names.
RSpec.describe "A setting", once: "options and flags" do
  include CommandFolder

  def configure(given, environment: {})
    Fastrack::Configuration.new(given, environment: environment, output: StringIO.new, warnings: @said = StringIO.new)
  end

  describe "in -O" do
    it "has the name of the option or the word of the ConfigFile, with rackup" do
      server = Server.start(ru: Rackups::PID, options: { max_workers: 2, "port" => "0", KeepAlive: false, keep_alive_timeout: "5s" })
      expect([server.await_workers(2).size, server.log]).to match([2, satisfy { |log| !log.include?("unknown option") }])
    end

    it "has either with the command, and the last one counts" do
      expect(fastrack("check", "-O", "max_workers=3", "-e", "test").first).to include("configuration: 3 workers at")
      expect(fastrack("check", "-O", "max_workers=3", "-O", "MaxWorkers=4", "-e", "test").first).to include("configuration: 4 workers at")
      expect(fastrack("check", "-O", "max_worker=3").first).to match(/\Afastrack: unknown option max_worker; did you mean \w+\?\n\z/)
    end

    it "goes before rackup's own default, and PORT, in either spelling" do
      rackup = { Port: 9292, Host: "localhost", AccessLog: [], config: "config.ru" }
      found = [{ port: "3000" }, { Port: "3000" }].map { |given| configure({ **rackup, **given }, environment: { "PORT" => "4000" }).port }
      expect(found).to eq([3000, 3000])
    end
  end

  describe "of time" do
    { "30s" => 30.0, "200ms" => 0.2, "5m" => 300.0, "1h" => 3600.0, "1.5 s" => 1.5, "45" => 45.0, 45 => 45.0 }.each do |text, seconds|
      it "may be #{text.inspect}" do
        expect(configure({ RequestTimeout: text, keep_alive_timeout: text }).then { |one| [one.request_timeout, one.keep_alive_timeout] }).to eq([seconds] * 2)
      end
    end

    it "has no other units" do
      ["5d", "5min", "s", "ms", "5 5s", "-5s"].each do |text|
        expect { configure({ RequestTimeout: text }) }.to raise_error(Fastrack::ConfigurationError, /RequestTimeout must be seconds/), text
      end
    end
  end

  it "of clients' time is client_timeout, or Rhebok's Timeout" do
    found = [{ Timeout: "7" }, { timeout: 7 }, { ClientTimeout: 7 }, { client_timeout: "7s" }].map { |given| configure(given) }
    expect(found.map(&:client_timeout)).to eq([7.0] * 4)
    %w[timeout client_timeout].each do |word|
      write("fastrack.rb", "#{word} 8\nmax_workers 1")
      expect(configure({ ConfigFile: path("fastrack.rb") }).client_timeout).to eq(8.0), word
    end
    expect(@said.string).to eq("")
  end

  it "of memory has a unit, unless it is many bytes" do
    expect(configure({ MaxMemoryPerChild: "300M", MaxMemory: 2_000_000_000 })).to have_attributes(max_memory_per_child: 300 << 20, max_memory: 2_000_000_000)
    ["300", 300].each do |given|
      expect { configure({ max_memory_per_child: given }) }
        .to raise_error(Fastrack::ConfigurationError, /option max_memory_per_child must have a unit, such as 300M; got/)
    end
  end

  it "of bytes may have a unit" do
    found = configure({ MaxBodySize: "10M", MaxRequestTarget: "8k", MaxHeaderSize: "32 KB", ResponseBuffer: "0" })
    expect(found).to have_attributes(max_body_size: 10 << 20, max_request_target: 8192, max_header_size: 32_768, response_buffer: 0)
    expect { configure({ MaxHeaderSize: "2M" }) }.to raise_error(Fastrack::ConfigurationError, /MaxHeaderSize must be a whole number from 1 to/)
  end

  it "of threads is Puma's variable, or Rails'" do
    variables = { "PUMA_MAX_THREADS" => "2", "MAX_THREADS" => "3", "RAILS_MAX_THREADS" => "4" }
    found = Array.new(4) { |left_out| configure({ user_supplied_options: [] }, environment: variables.drop(left_out).to_h) }
    expect(found.map(&:max_threads)).to eq([2, 3, 4, 1])
    expect(found.map(&:threads_line)).to eq([*variables.map { |name, count| "workers answer up to #{count} requests at once (#{name})" }, nil])
  end

  describe "as a flag of Puma's" do
    it "works, if there is something like it here" do
      write("tmp/.keep", "")
      write("lib/early.rb", "EARLY = 'required first'")
      write("elsewhere/config.ru", "run ->(env) { [200, {}, [[EARLY, Dir.pwd, env.key?('rack.early_hints')].join(' ')]] }")
      write("config/fastrack.rb", "raise 'read'")
      server = ready("-q", "-s", "--no-config", "-I", path("lib"), "-r", "early", "--dir", path("elsewhere"), "--preload", "--early-hints", "--log-requests",
                     "--redirect-append", "-b", "tcp://127.0.0.1:0", "-t", "2:3", "-e", "test")
      expect(server.get("/page").body).to eq("required first #{path("elsewhere")} true")
      server.await_log('"GET /page HTTP/1.1" 200')
      expect(fastrack("-V").first).to match(/\AFastrack \d/)
    end

    it "-C - reads no file, and --config still takes one" do
      write("config/fastrack.rb", "max_workers 7")
      write("other.rb", "max_workers 6")
      counts = [%w[-C -], %w[--config other.rb], []].map { |flags| fastrack("check", "-w", "2", "-e", "test", *flags).first[/loading from config_file:(\S+)/, 1] }
      expect(counts).to eq([nil, "other.rb", "config/fastrack.rb"])
    end

    { %w[-S a.state] => "-S, --state PATH is not for this command: write state_path", %w[--tag shop] => "write tag NAME",
      %w[--control-url ssl://x] => "--control-url must be unix://PATH" }.each do |flags, text|
      it "says what to use instead of #{flags.first}, in one line" do
        output, status = fastrack("check", *flags)
        expect([output.lines.size, output.start_with?("fastrack: "), output.include?(text), status]).to eq([1, true, true, 1])
      end
    end

    it "says which library of -r is missing" do
      output, status = fastrack("check", "-r", "no_such_library")
      expect([output.lines(chomp: true), status]).to match([include("fastrack: -r: cannot load such file -- no_such_library"), 1])
    end
  end
end
