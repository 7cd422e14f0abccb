# frozen_string_literal: true

# Who comes from Rhebok gets its names; who comes from Unicorn or Puma, theirs: `http://0.0.0.0:0/` is no address, and an empty
# REMOTE_ADDR no IP address.
RSpec.describe "A7 the env of a unix socket", once: "what the server puts in" do
  app = <<~'RUBY'
    require "ipaddr"
    require "rack"
    run lambda { |env|
      address = begin
        IPAddr.new(env["REMOTE_ADDR"]).to_s
      rescue IPAddr::Error
        "none"
      end
      seen = env.values_at("SERVER_NAME", "SERVER_PORT", "REMOTE_ADDR", "REMOTE_PORT")
      [200, {}, [[*seen, address, Rack::Request.new(env).url].join(" ")]]
    }
  RUBY

  rheboks = "0.0.0.0 0  0 none http://0.0.0.0:0/"
  others = "localhost 80 127.0.0.1 0 127.0.0.1 http://localhost/"

  {
    "rackup" => [{ unix: true }, rheboks],
    "rackup with Rhebok's file" => [{ options: { Host: nil, Port: nil }, config: "max_workers 1\npath \"app.sock\"\n" }, rheboks],
    "rackup with a unicorn.rb" => [{ options: { Host: nil, Port: nil }, config: "worker_processes 1\nlisten \"app.sock\"\n" }, others],
    "rackup with a puma.rb" =>
      [{ options: { Host: nil, Port: nil, ConfigFile: "puma.rb" }, files: { "puma.rb" => "bind 'unix://app.sock'\n" } }, others],
    "the fastrack command" => [{ fastrack: true, unix: true }, others],
    "the fastrack command with Rhebok's file" => [{ fastrack: true, options: { Host: nil, Port: nil }, config: "max_workers 1\npath \"app.sock\"\n" }, others]
  }.each do |how, (keywords, names)|
    it "A7 has #{names == rheboks ? "Rhebok's" : "Unicorn's and Puma's"} names with #{how}" do
      serve(app, **keywords)
      expect(talk("GET / HTTP/1.0").body).to eq(names)
      expect(talk("GET / HTTP/1.1", "Host: example.org").body).to end_with(" http://example.org/")
    end
  end
end
