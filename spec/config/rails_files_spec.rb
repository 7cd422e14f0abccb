# frozen_string_literal: true

require_relative "../../lib/fastrack"
require_relative "../../lib/fastrack/configuration"
require "stringio"

# Who answers the files of a Rails app whose user has set RAILS_SERVE_STATIC_FILES.
RSpec.describe "Files of a Rails app", once: "the same in every Ruby" do
  include CommandFolder

  let(:variables) { { "RAILS_SERVE_STATIC_FILES" => "enabled", "RAILS_ENV" => "production" } }

  before do
    write("config/application.rb", "class Shop < Rails::Application\nend\n")
    write("config.ru", "run ->(env) { [200, {}, ['app ' + env['PATH_INFO']]] }")
    write("public/assets/a-1.css", "body {}")
    write("public/robots.txt", "robots")
  end

  # What the fastrack command, and `bin/rails server`, know of its user.
  def configure(environment = variables, text = "", name = "config/fastrack.rb", **given)
    write(name, text)
    given = { ConfigFile: name, user_supplied_options: [], **given }
    Dir.chdir(@dir) { Fastrack::Configuration.new(given, environment: environment, output: StringIO.new, warnings: StringIO.new) }
  end

  it "are answered without the app, compiled ones for ever, and the log says so" do
    server = ready("-b", "tcp://127.0.0.1:0", "-w", "1", env: variables)
    expect(server.log).to include("the files of public/ are answered without the app", "`public_files false` leaves both to the app")
    asset, robots, other = ["/assets/a-1.css", "/robots.txt", "/other"].map { |path| server.get(path) }
    expect([asset.body, asset.headers["cache-control"], robots.body, robots.headers["cache-control"], other.body])
      .to eq(["body {}", "public, max-age=31536000, immutable", "robots", nil, "app /other"])
  end

  it "are the user's to say more of" do
    found = configure(variables, "cache_control '/*', 'no-cache'")
    expect([found.public_files, found.cache_control]).to eq(["public", [["/*", "no-cache"]]])
    expect(configure(variables, "public_files 'dist'").then { |one| [one.public_files, one.cache_control] }).to eq(["dist", nil])
    expect(configure(variables, "", "config/puma.rb").public_files).to eq("public")
  end

  { "port 3000" => "config/puma.rb", "preload_app!\nbind 'tcp://127.0.0.1:0'" => "config/puma.rb", "preload_app true" => "config/fastrack.rb",
    "bind 'ssl://0.0.0.0:443'\nlisten 80\nforce_ssl true" => "config/fastrack.rb" }.each do |text, name|
    it "are answered without the app, by three threads, with #{text.inspect} in #{name}" do
      expect(configure(variables, text, name).then { |found| [found.public_files, found.max_threads] }).to eq(["public", 3])
    end
  end

  {
    "without the variable" => [{ "RAILS_ENV" => "production" }], "with a no" => [{ "RAILS_SERVE_STATIC_FILES" => "false", "RAILS_ENV" => "production" }],
    "in development" => [{ "RAILS_SERVE_STATIC_FILES" => "1", "RAILS_ENV" => "development" }], "with public_files false" => [nil, "public_files false"],
    "on a unix socket alone" => [nil, "path '/tmp/a.sock'"], "with a unicorn.rb" => [nil, "worker_processes 1\nlisten '127.0.0.1:0'", "config/unicorn.rb"]
  }.each do |name, (environment, text, file)|
    it("are the app's #{name}") { expect(configure(environment || variables, text || "", file || "config/fastrack.rb").proxy?).to be_falsy }
  end

  it "are the app's with rackup, where there is no folder, and in every other app" do
    rackup = { ConfigFile: "config/fastrack.rb" }
    write("config/fastrack.rb", "")
    Dir.chdir(@dir) { expect(Fastrack::Configuration.new(rackup, environment: variables, output: StringIO.new, warnings: StringIO.new).proxy?).to be_falsy }
    FileUtils.mv("#{@dir}/public", "#{@dir}/dist")
    expect(configure.proxy?).to be_falsy
    FileUtils.mv("#{@dir}/dist", "#{@dir}/public")
    write("config/application.rb", "module Shop\nend\n")
    expect(configure.proxy?).to be_falsy
  end
end
