# frozen_string_literal: true

require "open3"

RSpec.describe "The server that is taken where nobody names one" do
  # What Rack's own choice is with the gem, where only these handlers can be loaded.
  def default(loadable: [], given: "default", env: {})
    script = <<~RUBY
      require "rack"
      require "rhebok-rs"
      registry = defined?(Rackup::Handler) ? Rackup::Handler : Rack::Handler
      registry.singleton_class.class_eval do
        get = instance_method(:get)
        define_method(:get) do |name|
          raise LoadError, name.to_s unless [*#{loadable.inspect}, "webrick", "fastrack"].include?(name.to_s)
          %w[fastrack].include?(name.to_s) ? get.bind_call(self, name) : name.to_s
        end
      end
      print registry.#{given}
    RUBY
    Open3.capture2e(Server::CLEAN_ENVIRONMENT.merge("RACKUP_HANDLER" => nil).merge(env), RbConfig.ruby, "-W:no-deprecated", "-I", Server::LIB, "-e", script).first
  end

  describe "with one worker in development" do
    include CommandFolder

    before do
      write("Gemfile", "gem \"rack\"\n" \
                       "%w[rackup webrick].each { |name| gem name if Gem::Specification.any? { |spec| spec.name == name } }\n" \
                       "gem \"rhebok-rs\", path: #{Server::ROOT.inspect}\n")
      skip "Bundler does not find the gems on this machine" unless system("bundle check", chdir: @dir, %i[out err] => File::NULL)
    end

    def workers(*words, env: {})
      command = ["sh", "-c", 'cd "$0" && exec "$@"', @dir, RbConfig.ruby, *words]
      Server.ready(ru: "", command: command, env: env).log[/Workers:(\d+)/, 1].to_i
    end

    it "is Fastrack for rackup, where config.ru loads the bundle" do
      write("config.ru", "Bundler.require\nrun ->(_env) { [200, {}, []] }")
      rackup = ["-S", "bundle", "exec", "rackup", "-o", "127.0.0.1", "-p", "0"]
      expect([workers(*rackup), workers(*rackup, "-E", "production"), workers(*rackup, "-s", "Fastrack")]).to eq([1, 5, 5])
    end

    # As Sinatra::Application does it.
    it "is Fastrack for an app that starts itself" do
      write("app.rb", <<~RUBY)
        require "bundler/setup"
        Bundler.require
        app = ->(_env) { [200, {}, []] }
        def app.development? = !ENV.key?("APP_ENV")
        (defined?(Rackup::Handler) ? Rackup::Handler : Rack::Handler).pick(%w[puma falcon thin webrick]).run(app, Port: 0, Host: "127.0.0.1")
      RUBY
      expect([workers("app.rb"), workers("app.rb", env: { "APP_ENV" => "production" })]).to eq([1, 5])
    end
  end

  it("is Fastrack where only WEBrick is beside it") { expect(default).to match(/\ARack(?:up)?::Handler::Fastrack\z/) }

  it "is Puma where that can be loaded, and what RACK_HANDLER says" do
    expect([default(loadable: %w[puma]), default(env: { "RACK_HANDLER" => "webrick" }).lines.last]).to eq(%w[puma webrick])
  end

  it "is Fastrack for Sinatra's own list, and WEBrick where nothing else is on it" do
    expect([default(given: "pick(%w[falcon puma HTTP webrick])"), default(given: 'pick("webrick")')]).to match([/::Fastrack\z/, "webrick"])
  end
end
