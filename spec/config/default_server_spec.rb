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

  it("is Fastrack where only WEBrick is beside it") { expect(default).to match(/\ARack(?:up)?::Handler::Fastrack\z/) }

  it "is Puma where that can be loaded, and what RACK_HANDLER says" do
    expect([default(loadable: %w[puma]), default(env: { "RACK_HANDLER" => "webrick" }).lines.last]).to eq(%w[puma webrick])
  end

  it "is Fastrack for Sinatra's own list, and WEBrick where nothing else is on it" do
    expect([default(given: "pick(%w[falcon puma HTTP webrick])"), default(given: 'pick("webrick")')]).to match([/::Fastrack\z/, "webrick"])
  end
end
