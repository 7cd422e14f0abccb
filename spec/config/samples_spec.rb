# frozen_string_literal: true

require "json"
require "yaml"
require_relative "../../lib/fastrack/configuration"

# What users copy: the ConfigFiles in README, the manual, the examples and the generator, started as the manual starts servers.
RSpec.describe "A ConfigFile to be copied", once: "Ruby that is read the same everywhere" do
  include CommandFolder

  read = ->(file) { File.read(File.join(Server::ROOT, file), encoding: "UTF-8") }
  # Samples of docs/proxy.md need ports below 1024 and an authority for certificates: see proxy_words_spec.
  pages = Dir.glob(%w[README.md docs/*.md], base: Server::ROOT).sort - ["docs/proxy.md"]
  word = /^(?:#{Fastrack::Option::BY_WORD.keys.join("|")}) /
  samples = pages.flat_map do |page|
    blocks = read.call(page).scan(/^```ruby\n(.*?)^```$/m).flatten.select { |code| code.match?(%r{\A# config/(?:fastrack|unicorn)}) || code.match?(word) }
    blocks.map.with_index(1) { |code, number| ["#{page}, no. #{number}", code] }
  end.to_h
  %w[heroku/config/fastrack.rb monitoring/fastrack.rb rails/config/fastrack.rb unicorn.rb].each { |file| samples["examples/#{file}"] = read.call("examples/#{file}") }
  samples["examples/kubernetes/app.yaml"] = YAML.load_stream(read.call("examples/kubernetes/app.yaml")).first.dig("data", "fastrack.rb")
  head = read.call("lib/generators/fastrack/install/install_generator.rb")[/HEAD = <<~RUBY\n(.*?)^ +RUBY$/m, 1].gsub(/^ {8}/, "")
  samples["the generator"] = format(head, default: "1", workers: 'ENV["WEB_CONCURRENCY"]', requests: "max_request_per_child 0", files: "# ")

  rackup = ["rackup", "-s", "Fastrack", "-O", "ConfigFile=config/fastrack.rb"]
  # Each with its variables. The last one, which the manual does not name, is for those that ask for the environment.
  commands = { "fastrack -e production" => [["fastrack", "-c", "config/fastrack.rb", "-e", "production"], {}],
               "RACK_ENV=production fastrack" => [["fastrack", "-c", "config/fastrack.rb"], { "RACK_ENV" => "production" }],
               "RAILS_ENV=production fastrack" => [["fastrack", "-c", "config/fastrack.rb"], { "RAILS_ENV" => "production" }],
               "rackup -E production" => [[*rackup, "-E", "production"], {}],
               "RAILS_ENV=production rackup" => [rackup, { "RAILS_ENV" => "production" }] }

  # Words that tell what the server has: where it listens, both names of the environment, and its settings.
  PROBE = <<~'RUBY'
    after_worker_ready do |server, worker|
      values = Fastrack::Option::ALL.to_h { |option| [option.word, server.config[option.word].inspect] }
      found = { at: server.listeners.map(&:to_s), names: ENV.values_at("RACK_ENV", "RAILS_ENV"), values: values }
      File.write("#{__dir__}/found.new", JSON.generate(found))
      File.rename("#{__dir__}/found.new", "#{__dir__}/found")
    end
  RUBY

  RU = <<~'RUBY'
    require "json"
    handler = Object.new
    def handler.clear_all_connections!(*) = nil
    Hanami = Module.new { def self.shutdown = nil }
    ActiveRecord = Module.new
    ActiveRecord::Base = Struct.new(:connection_handler) { def establish_connection = nil }.new(handler)
    run ->(_env) { [200, {}, []] }
  RUBY

  # A sample with places of this example's own.
  def adapted(code)
    code.gsub(%r{/(?:run|srv)/app(?:/current|/shared)?}, @dir).sub(/(?<=^root = ).*/, @dir.inspect)
        .gsub(/(?<=listen )8080|(?<=:)808[01]|\#\{9293 \+ worker\.nr\}/, "0").gsub(/^control_(?:listen|token).*/, "")
  end

  # A server with that file in a folder of its own.
  def launched(code, words, env)
    program = words.first == "fastrack" ? [Server::COMMAND] : ["-S", words.first]
    folder = @dir
    @dir = Dir.mktmpdir("server", folder)
    write("config.ru", RU)
    %w[tmp log shared/log shared/tmp].each { |name| FileUtils.mkdir_p(path(name)) }
    write("config/fastrack.rb", "require \"json\"\n#{adapted(code)}\n#{PROBE}")
    variables = { "PORT" => "0", "CONTROL_TOKEN" => "0123456789abcdef", "PIDFILE" => path("tmp/app.pid") }
    [Server.launch(ru: "", command: in_folder(*words.drop(1), program: program), env: variables.merge(env)), @dir]
  ensure
    @dir = folder
  end

  # What the server says that it has, without its folder's path.
  def found(server, folder)
    file = File.join(folder, "config/found")
    eventually(Server::DEADLINE, -> { server.log }) { File.exist?(file) || (server.ended? && raise(Server::Failed, server.log)) }
    JSON.parse(File.read(file).gsub(folder, "FOLDER"))
  ensure
    server.signal(:QUIT) unless server.ended?
  end

  # The values that a sample's lines have in production, by word, and where it listens.
  def written(text)
    folder, @dir = @dir, "FOLDER"
    code = adapted(text)
    lines = code.scan(/^ *(\w+) (?!do\b|\{)(.+?)(?: +#.*)?$/).select { |name, _| Fastrack::Option::BY_WORD.key?(name.to_sym) }
    given = lines.map { |name, value| [name == "timeout" ? "request_timeout" : name, Sample.new("production", @dir).instance_eval("[#{value}]")] }
    at, values = given.partition { |name, _| %w[listen path].include?(name) }
    values = values.reject { |_, value| value == [nil] }.to_h { |name, value| Fastrack::Option::BY_WORD[name.to_sym].then { |option| [option.word.to_s, option.coerce(*value).inspect] } }
    # The example's workers have ports of their own.
    at << ["listen", ["127.0.0.1:0"]] if code.include?("server.listen(")
    [values, at.map { |_, (place)| place.to_s.include?("/") ? ":unix:#{place}" : /\A#{Regexp.escape(place.to_s[/.*(?=:)/] || "0.0.0.0")}:\d+\z/ }]
  ensure
    @dir = folder
  end

  # What the values in a sample are made of.
  Sample = Struct.new(:environment, :root)

  samples.each do |name, text|
    it "says in production what its lines say, by whatever command: #{name}" do
      values, places = written(text)
      chosen = text.match?(/environment|production/) ? commands : commands.first(4).to_h
      servers = chosen.transform_values { |words, env| launched(text, words, env) }
      servers.each do |command, (server, folder)|
        found = found(server, folder)
        expect([command, found["names"], found["values"].slice(*values.keys)]).to eq([command, %w[production production], values])
        expect([command, found["at"]]).to match([command, places.empty? ? [/\A(?:[\d.]+|localhost):\d+\z/] : match_array(places)])
      end
    end
  end

  it "README's is the server of a developer without -e, on localhost and without limits" do
    found = found(*launched(samples.fetch("README.md, no. 1"), %w[fastrack -c config/fastrack.rb], {}))
    expect(found["names"]).to eq(%w[development development])
    expect([found["at"], found["values"].values_at("max_workers", "pid", "request_timeout")]).to match([all(start_with("localhost:")), %w[1 nil 0.0]])
  end
end
