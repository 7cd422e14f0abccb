# frozen_string_literal: true

# The worker remembers which fields came in which order, to make the next env of that kind at once.
RSpec.describe "A11 the env of many clients with different fields, in one worker" do
  include KeptHelpers

  before(:context) { serve(HttpApps.ru(:echo), options: { "MaxWorkers" => 1 }) }

  common = %w[
    Accept Accept-Charset Accept-Encoding Accept-Language Authorization Cache-Control Content-Encoding Content-Type Cookie
    Date DNT Forwarded From If-Match If-Modified-Since If-None-Match If-Range If-Unmodified-Since Keep-Alive Origin Pragma
    Priority Range Referer Sec-CH-UA Sec-CH-UA-Mobile Sec-CH-UA-Platform Sec-Fetch-Dest Sec-Fetch-Mode Sec-Fetch-Site
    Sec-Fetch-User Sec-WebSocket-Version TE Upgrade-Insecure-Requests User-Agent Via X-CSRF-Token X-Forwarded-For
    X-Forwarded-Host X-Forwarded-Port X-Forwarded-Proto X-Real-IP X-Request-ID X-Request-Start X-Requested-With
  ].freeze
  rare = %w[X-One X-Two X-Three Rarely-Sent].freeze

  def key(name)
    name = name.upcase.tr("-", "_")
    name == "CONTENT_TYPE" ? name : "HTTP_#{name}"
  end

  # What the fields have to be in the env, by the words of the contract alone.
  def expected(fields)
    fields.group_by { |name, _| key(name) }.transform_values do |same|
      same.map(&:last).join(same[0][0] == "Cookie" ? "; " : ", ")
    end
  end

  def fields_of(env) = env.select { |name, _| name.start_with?("HTTP_") || name == "CONTENT_TYPE" }

  # The env that the app got, in which an unseen value would be the one of an earlier request.
  def env_with(client, fields, target)
    lines = fields.map { |name, value| "#{name}: #{value}" }
    HttpApps::Echo.read(client.get(target, *lines)).fetch("env")
  end

  it "has each one's own fields and no others, whatever came before" do
    random = Random.new(RSpec.configuration.seed)
    client = peer
    # Some kinds come often, so that they are remembered, driven out by others, and remembered again.
    kinds = Array.new(40) do
      names = common.sample(random.rand(0..common.size), random: random) + rare.sample(random.rand(0..2), random: random)
      names.push(names.sample(random: random)).compact! if random.rand(8).zero?
      names.shuffle(random: random)
    end
    600.times do |index|
      fields = kinds[(random.rand**2 * kinds.size).to_i].map { |name| [name, "#{name} of #{index}"] }
      target = index.even? ? "/#{index}?#{index}" : "/#{index}"
      env = env_with(client, fields, target)
      expect(fields_of(env)).to eq("HTTP_HOST" => "a", **expected(fields))
      expect(env).to include("REQUEST_URI" => target, "PATH_INFO" => "/#{index}", "QUERY_STRING" => target[/\?(.*)/, 1].to_s)
    end
  end

  it "has the method, the version and the length of each, on a connection where they change" do
    client = peer
    3.times do
      get = HttpApps::Echo.read(client.get("/", "Accept: a")).fetch("env")
      post = HttpApps::Echo.read(client.get("/", "Accept: a", verb: "POST", body: "abc")).fetch("env")
      odd = HttpApps::Echo.read(client.get("/", "Accept: a", "Connection: keep-alive", verb: "ODD", version: "1.0")).fetch("env")
      expect(get).to include("REQUEST_METHOD" => "GET", "SERVER_PROTOCOL" => "HTTP/1.1")
      expect(get).not_to have_key("CONTENT_LENGTH")
      expect(post).to include("REQUEST_METHOD" => "POST", "CONTENT_LENGTH" => "3")
      expect(odd).to include("REQUEST_METHOD" => "ODD", "SERVER_PROTOCOL" => "HTTP/1.0", "HTTP_CONNECTION" => "keep-alive")
    end
  end
end
