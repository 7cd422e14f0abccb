# frozen_string_literal: true

require_relative "../../lib/fastrack/configuration"

RSpec.describe "The words of a unicorn.rb", once: "a file of words" do
  include Folder

  let(:file) { File.join(@dir, "unicorn.rb") }

  def configure(text, given = {}, environment = {}, **keywords)
    File.write(file, text)
    Fastrack::Configuration.new({ ConfigFile: file }.merge(given), environment: environment, output: StringIO.new,
                                                                   warnings: StringIO.new, **keywords)
  end

  it "C2 set the options that they stand for" do
    found = configure(<<~RUBY)
      worker_processes 3
      preload_app false
      pid "tmp/app.pid"
      stdout_path "log/out.log"
      stderr_path "log/err.log"
      working_directory "/"
      user "root", "root"
    RUBY
    expect(found).to have_attributes(max_workers: 3, preload_app: false, pid: "tmp/app.pid", stdout_path: "log/out.log",
                                     stderr_path: "log/err.log", working_directory: "/")
    expect(found.user).to have_attributes(name: "root", uid: 0, gid: 0)
  end

  it "C2 listen may be there several times, with settings, and the last one for an address counts" do
    found = configure(<<~RUBY)
      listen 8080, :tcp_nopush => true
      listen "/run/app.sock", backlog: 64
      listen 8080, tries: 2
      listen nil
    RUBY
    expect([found.addresses.map(&:to_s), found.addresses.map(&:tries)]).to eq([["/run/app.sock", "0.0.0.0:8080"], [5, 2]])
  end

  it "C2 listen goes before Host, Port and Path of the command line, and PORT; a Listen of the command line goes after the file's addresses, unless it overrides them" do
    found = configure("listen 8080", { Host: "a.example", Port: "1", Path: "/x" }, { "PORT" => "none" })
    expect(found.addresses.map(&:to_s)).to eq(["0.0.0.0:8080"])
    expect(configure("port 8080", { Listen: "1,/x" }).addresses.map(&:to_s)).to eq(["0.0.0.0:8080"])
    expect(configure("", { Listen: "1,/x" }).addresses.map(&:to_s)).to eq(["0.0.0.0:1", "/x"])
    override = { Listen: [Fastrack::Address.parse(1)] }
    expect(configure("path '/x'", overrides: override).addresses.map(&:to_s)).to eq(["0.0.0.0:1"])
  end

  # What reading a file says on stderr.
  def warnings_of(text)
    warnings = StringIO.new
    File.write(file, text)
    Fastrack::Configuration.new({ ConfigFile: file }, environment: {}, output: StringIO.new, warnings: warnings)
    warnings.string
  end

  it "C2 those whose effect is not to be had are taken, with a line that says so where it would be another" do
    expect(warnings_of("check_client_connection true\nrewindable_input true\nworker_exec false\ntrust_x_forwarded false")).to eq("")
    text = "rewindable_input false\n\nclient_body_buffer_size 1024\nworker_exec true\ntrust_x_forwarded true"
    expect(warnings_of(text)).to eq(<<~TEXT)
      fastrack: ConfigFile #{file}:1: rewindable_input has no effect: bodies are always rewindable; see stream_body for calling the app early
      fastrack: ConfigFile #{file}:3: client_body_buffer_size has no effect: bodies of up to 1 MiB are kept in memory, larger ones in a file
      fastrack: ConfigFile #{file}:4: worker_exec has no effect: workers are always forked; see preload_app false for loading the app in each
      fastrack: ConfigFile #{file}:5: trust_x_forwarded has no effect: rack.url_scheme is that of the connection; Rack::Request#scheme reads X-Forwarded-Proto
    TEXT
  end

  it "C2 all that Unicorn's documentation has are there" do
    words = %i[after_fork after_worker_exit after_worker_ready before_exec before_fork check_client_connection client_body_buffer_size
               default_middleware early_hints listen logger pid preload_app rewindable_input stderr_path stdout_path timeout user
               worker_exec worker_processes working_directory]
    expect(words - Fastrack::ConfigFile.new(file).public_methods).to eq([])
  end

  it "C2 logger takes what can be logged to" do
    expect(configure("require 'logger'\nlogger Logger.new($stderr)").logger).to be_a(Logger)
    expect { configure("logger 'log/x.log'") }.to raise_error(Fastrack::ConfigurationError, "ConfigFile #{file}:1: logger must be a Logger; got \"log/x.log\"")
  end

  describe "timeout" do
    { "worker_processes 2" => [30, 300], "listen 8080" => [30, 300], "preload_app true" => [30, 300],
      "" => [60, 30], "max_workers 2" => [60, 30], "pid 'app.pid'" => [60, 30], "host 'localhost'\nport 1" => [60, 30],
      # Words beside it that are never mistaken.
      "worker_processes 1\nclient_timeout 20" => [30, 20], "request_timeout 10" => [10, 30] }.each do |text, (app, client)|
      it "C2 is #{app == 30 ? "how long the app" : "how long a client"} may take beside #{text.inspect}" do
        expect(configure("timeout 30\n#{text}")).to have_attributes(request_timeout: app, client_timeout: client)
      end
    end

    it "C2 is an error beside words of both" do
      expect { configure("listen 8080\n\ntimeout 30\nmax_workers 3") }
        .to raise_error(Fastrack::ConfigurationError, "ConfigFile #{file}:3: timeout has two meanings in a file with listen and max_workers; " \
                                                      "write request_timeout, for the app, or client_timeout, for clients")
    end
  end

  it "C2 a mask may be an octal number or its digits" do
    expect(["umask 0027", "umask '0027'", "umask '27'"].map { |text| configure(text).umask }).to eq([0o27] * 3)
  end
end
