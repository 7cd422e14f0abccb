# frozen_string_literal: true

require "net/http"
require "support/http_helpers"

# What Rhebok's own tests check (its spec_01 to spec_05), of Fastrack.
module RhebokCases
  # Rack::Lint of Rack 3 does not like line ends in headers, which are what is tested here.
  MIDDLEWARE = HttpApps.rack3? ? [] : ["Rack::Lint"]
  APP = "require \"rack/lint\"\n#{HttpApps.ru(:rhebok, middleware: MIDDLEWARE)}"

  # Runs the handler in a script as one would write it, and not by rackup.
  #
  # @param call [String] Ruby source; the app is in `app`
  def run_script(call, **keywords)
    script = File.join(@scripts, "server.rb")
    File.write(script, <<~RUBY)
      # frozen_string_literal: true

      require "rack"
      require "rhebok-rs"
      app = Rack::Builder.parse_file("config.ru")
      app = app.first if app.is_a?(Array)
      #{call}
    RUBY
    # What would come after the script's name is the harness's own way to start a server; the script does not look at it.
    @server = Server.start(ru: APP, wrapper: [RbConfig.ruby, "-w", "-I", Server::LIB, script], **keywords)
  end

  # Net::HTTP's response, and what the app saw.
  def fetch(request)
    response = Net::HTTP.start("127.0.0.1", server.port) { |http| http.request(request) }
    [response, Marshal.load(response.body)] # rubocop:disable Security/MarshalLoad -- written by the app
  end

  def get(path, headers = {})
    fetch(Net::HTTP::Get.new(path, headers))
  end
end

RSpec.describe "A18 Rhebok's spec_01" do
  it "A18 there is a version number" do
    require "fastrack/version"
    expect(Fastrack::VERSION).to match(/\A\d+\.\d+\.\d+/)
  end
end

RSpec.describe "A18 Rhebok's spec_02: over TCP" do
  include RhebokCases

  before(:context) { serve(RhebokCases::APP, rackup: false) }

  it "A18 responds" do
    expect(get("/").first.code).to eq("200")
  end

  it "A18 tells protocol, port and name" do
    _, env = get("/")
    expect(env).to include("SERVER_PROTOCOL" => "HTTP/1.1", "SERVER_PORT" => server.port.to_s, "SERVER_NAME" => "127.0.0.1")
  end

  it "A18 has rack's variables" do
    _, env = get("/")
    expect(env["rack.version"]).to eq(HttpApps.rack3? ? nil : [1, 1])
    expect(env).to include("rack.multithread" => false, "rack.multiprocess" => true, "rack.run_once" => false)
  end

  it "A18 sends several headers of one name" do
    response, = get("/")
    expect(response["Content-Type"]).to eq("text/yaml")
    expect(response["X-Foo"]).to eq("Foo, Bar")
    expect(response["X-Bar"]).to eq("Foo, Bar")
    expect(response["X-Baz"]).to eq("Baz")
    expect(response["X-Fuga"]).to eq("Fuga")
  end

  it "A18 leaves Date to the app" do
    expect(get("/date").first["Date"]).to eq("Foooo")
  end

  it "A18 does not leave Connection to the app" do
    response, = fetch(Net::HTTP::Get.new("/connection", { "Connection" => "close" }))
    expect(response["Connection"]).to eq("close")
    expect(response["Content-Type"]).to eq("text/yaml")
    expect(response["Date"]).to match(/20\d\d/)
  end

  it "A18 has CGI variables on GET" do
    expect(get("/").last).to include("REQUEST_METHOD" => "GET", "PATH_INFO" => "/", "QUERY_STRING" => "", "test.postdata" => "")
    expect(get("/test/foo?quux=1").last).to include("REQUEST_METHOD" => "GET", "PATH_INFO" => "/test/foo", "QUERY_STRING" => "quux=1")
  end

  it "A18 has CGI variables on POST" do
    post = Net::HTTP::Post.new("/", { "X-test-header" => "42" })
    post.form_data = { "rack-form-data" => "23" }
    response, env = fetch(post)
    expect(response.code).to eq("200")
    expect(env).to include(
      "REQUEST_METHOD" => "POST", "QUERY_STRING" => "", "HTTP_X_TEST_HEADER" => "42", "test.postdata" => "rack-form-data=23"
    )
  end

  it "A18 passes authorization on" do
    request = Net::HTTP::Get.new("/test")
    request.basic_auth("ruth", "secret")
    expect(fetch(request).last["HTTP_AUTHORIZATION"]).to eq("Basic cnV0aDpzZWNyZXQ=")
  end

  it "A18 sends the app's status" do
    response, env = get("/test?secret")
    expect(response.code).to eq("403")
    expect(env["rack.url_scheme"]).to eq("http")
  end
end

RSpec.describe "A18 Rhebok's spec_03: over a unix socket" do
  before(:context) { serve(RhebokCases::APP, unix: true, rackup: false) }

  it "A18 has the variables of a unix socket" do
    response = talk("GET / HTTP/1.0")
    env = Marshal.load(response.body) # rubocop:disable Security/MarshalLoad -- written by the app
    expect(env["rack.version"]).to eq(HttpApps.rack3? ? nil : [1, 1])
    expect(env).to include(
      "rack.url_scheme" => "http", "SERVER_NAME" => "0.0.0.0", "SERVER_PORT" => "0", "REMOTE_ADDR" => "", "REMOTE_PORT" => "0"
    )
  end
end

RSpec.describe "A18 Rhebok's spec_04 and spec_05: hooks" do
  include RhebokCases

  before(:context) { @scripts = Dir.mktmpdir("fastrack-scripts") }
  after(:context) { FileUtils.remove_entry(@scripts) }

  it "A18 hooks given as options run before and after the fork" do
    run_script(<<~RUBY)
      Fastrack::Handler.run(
        app, Host: "127.0.0.1", Port: 0, MaxWorkers: 1,
        BeforeFork: proc { ENV["TEST_FOO"] = "FOO" }, AfterFork: proc { ENV["TEST_BAR"] = "BAR" }
      )
    RUBY
    expect(get("/").last).to include("TEST_FOO" => "FOO", "TEST_BAR" => "BAR")
  end

  it "A18 hooks given in a ConfigFile win over options" do
    run_script(<<~RUBY, config: <<~CONFIG)
      Fastrack::Handler.run(app, BeforeFork: proc { ENV["TEST_FOO"] = "BAZ" }, ConfigFile: "fastrack.rb")
    RUBY
      host "127.0.0.1"
      port 0
      max_workers 1
      before_fork {
        ENV["TEST_FOO"] = "FOO"
      }
      after_fork {
        ENV["TEST_BAR"] = "BAR"
      }
    CONFIG
    expect(get("/").last).to include("TEST_FOO" => "FOO", "TEST_BAR" => "BAR")
    expect(server.await_workers(1).size).to eq(1)
  end
end
