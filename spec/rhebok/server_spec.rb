# frozen_string_literal: true

# What Rhebok's own tests check and no other spec. Its spec_01 to spec_03 and spec_06 are in rack/env, rack/input, rack/unix_socket_env,
# http/response_head, http/expect and http/chunked_response.
RSpec.describe "A18 Rhebok's tests" do
  # Shows two environment variables of its process.
  app = 'run ->(_env) { [200, { "content-type" => "text/plain" }, [ENV.values_at("TEST_FOO", "TEST_BAR").join(" ")]] }'

  # Runs the handler in a script as one would write it, and not by rackup.
  define_method(:run_script) do |call, **keywords|
    Dir.mktmpdir do |dir|
      File.write("#{dir}/server.rb", <<~RUBY)
        require "rack"
        require "rhebok-rs"
        app = Rack::Builder.parse_file("config.ru")
        app = app.first if app.is_a?(Array)
        #{call}
      RUBY
      Server.start(ru: app, command: [RbConfig.ruby, "-w", "-I", Server::LIB, "#{dir}/server.rb"], **keywords)
    end
  end

  it "A18 spec_04: hooks given as options run before and after the fork" do
    server = run_script(<<~RUBY)
      Fastrack::Handler.run(app, Host: "127.0.0.1", Port: 0, MaxWorkers: 1, BeforeFork: proc { ENV["TEST_FOO"] = "FOO" }, AfterFork: proc { ENV["TEST_BAR"] = "BAR" })
    RUBY
    expect(server.get.body).to eq("FOO BAR")
  end

  it "A18 spec_05: hooks given in a ConfigFile win over options" do
    server = run_script(<<~RUBY, config: <<~CONFIG)
      Fastrack::Handler.run(app, BeforeFork: proc { ENV["TEST_FOO"] = "BAZ" }, ConfigFile: "fastrack.rb")
    RUBY
      host "127.0.0.1"
      port 0
      max_workers 1
      before_fork { ENV["TEST_FOO"] = "FOO" }
      after_fork { ENV["TEST_BAR"] = "BAR" }
    CONFIG
    expect([server.get.body, server.await_workers(1).size]).to eq(["FOO BAR", 1])
  end
end
