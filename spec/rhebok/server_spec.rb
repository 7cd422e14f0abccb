# frozen_string_literal: true

require "net/http"

# What Rhebok's own tests check (its spec_01 to spec_05), of Fastrack. Most of it is in spec/rack and spec/http, too; here it goes
# through another HTTP client.
RSpec.describe "A18 Rhebok's tests" do
  # Rack::Lint of Rack 3 does not like line ends in headers, which are what is tested here.
  middleware = HttpApps.rack3? ? [] : ["Rack::Lint"]
  app = "require \"rack/lint\"\n#{HttpApps.ru(:rhebok, middleware: middleware)}"

  # Net::HTTP's response, and what the app saw.
  def fetch(request)
    response = Net::HTTP.start("127.0.0.1", server.port) { |http| http.request(request) }
    [response, Marshal.load(response.body)] # rubocop:disable Security/MarshalLoad -- written by the app
  end

  def get(path, headers = {}) = fetch(Net::HTTP::Get.new(path, headers))

  version = HttpApps.rack3? ? nil : [1, 1]

  context "spec_02, over TCP" do
    before(:context) { serve(app, rackup: false) }

    it "A18 has protocol, port and name, rack's variables, and CGI's on GET" do
      response, env = get("/test/foo?quux=1")
      expect(response.code).to eq("200")
      expect(env).to include("SERVER_PROTOCOL" => "HTTP/1.1", "SERVER_PORT" => server.port.to_s, "SERVER_NAME" => "127.0.0.1", "REQUEST_METHOD" => "GET",
                             "PATH_INFO" => "/test/foo", "QUERY_STRING" => "quux=1", "test.postdata" => "",
                             "rack.multithread" => false, "rack.multiprocess" => true, "rack.run_once" => false)
      expect(env["rack.version"]).to eq(version)
    end

    it "A18 sends several headers of one name" do
      response, = get("/")
      expect(%w[Content-Type X-Foo X-Bar X-Baz X-Fuga].map { |name| response[name] }).to eq(["text/yaml", "Foo, Bar", "Foo, Bar", "Baz", "Fuga"])
    end

    it "A18 leaves Date to the app, but not Connection" do
      expect(get("/date").first["Date"]).to eq("Foooo")
      response, = get("/connection", { "Connection" => "close" })
      expect([response["Connection"], response["Date"]]).to match(["close", /20\d\d/])
    end

    it "A18 has CGI variables on POST, and passes authorization on" do
      post = Net::HTTP::Post.new("/", { "X-test-header" => "42" })
      post.form_data = { "rack-form-data" => "23" }
      post.basic_auth("ruth", "secret")
      expect(fetch(post).last).to include("REQUEST_METHOD" => "POST", "QUERY_STRING" => "", "HTTP_X_TEST_HEADER" => "42", "test.postdata" => "rack-form-data=23",
                                          "HTTP_AUTHORIZATION" => "Basic cnV0aDpzZWNyZXQ=")
    end

    it "A18 sends the app's status" do
      response, env = get("/test?secret")
      expect([response.code, env["rack.url_scheme"]]).to eq(%w[403 http])
    end
  end

  it "A18 spec_03: has the variables of a unix socket" do
    serve(app, unix: true, rackup: false)
    env = Marshal.load(talk("GET / HTTP/1.0").body) # rubocop:disable Security/MarshalLoad -- written by the app
    expect(env["rack.version"]).to eq(version)
    expect(env).to include("rack.url_scheme" => "http", "SERVER_NAME" => "0.0.0.0", "SERVER_PORT" => "0", "REMOTE_ADDR" => "", "REMOTE_PORT" => "0")
  end

  # Runs the handler in a script as one would write it, and not by rackup.
  def run_script(app, call, **keywords)
    Dir.mktmpdir do |dir|
      File.write("#{dir}/server.rb", <<~RUBY)
        require "rack"
        require "rhebok-rs"
        app = Rack::Builder.parse_file("config.ru")
        app = app.first if app.is_a?(Array)
        #{call}
      RUBY
      @server = Server.start(ru: app, command: [RbConfig.ruby, "-w", "-I", Server::LIB, "#{dir}/server.rb"], **keywords)
    end
  end

  it "A18 spec_04: hooks given as options run before and after the fork" do
    run_script(app, <<~RUBY)
      Fastrack::Handler.run(app, Host: "127.0.0.1", Port: 0, MaxWorkers: 1, BeforeFork: proc { ENV["TEST_FOO"] = "FOO" }, AfterFork: proc { ENV["TEST_BAR"] = "BAR" })
    RUBY
    expect(get("/").last).to include("TEST_FOO" => "FOO", "TEST_BAR" => "BAR")
  end

  it "A18 spec_05: hooks given in a ConfigFile win over options" do
    run_script(app, <<~RUBY, config: <<~CONFIG)
      Fastrack::Handler.run(app, BeforeFork: proc { ENV["TEST_FOO"] = "BAZ" }, ConfigFile: "fastrack.rb")
    RUBY
      host "127.0.0.1"
      port 0
      max_workers 1
      before_fork { ENV["TEST_FOO"] = "FOO" }
      after_fork { ENV["TEST_BAR"] = "BAR" }
    CONFIG
    expect(get("/").last).to include("TEST_FOO" => "FOO", "TEST_BAR" => "BAR")
    expect(server.await_workers(1).size).to eq(1)
  end
end
