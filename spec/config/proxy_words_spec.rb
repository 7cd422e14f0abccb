# frozen_string_literal: true

require_relative "../../lib/fastrack"
require_relative "../../lib/fastrack/configuration"
require "stringio"

RSpec.describe "Words of the proxy", once: "a file of words" do
  include CommandFolder

  def configure(text, name = "config/fastrack.rb", **given)
    write(name, text)
    Dir.chdir(@dir) { Fastrack::Configuration.new({ ConfigFile: name, **given }, environment: {}, output: StringIO.new, warnings: @said = StringIO.new) }
  end

  # Addresses of clients, and whether each has TLS, the PROXY protocol, and which files.
  def places(found) = found.addresses.reject { |one| one.is_a?(Fastrack::Proxy::InnerAddress) }.map { |one| [one.to_s, one.tls?, one.proxy_protocol?, one.certificates] }

  tls = ["0.0.0.0:443", true, false, [%w[a.pem a.key]]]
  {
    ["bind 'ssl://0.0.0.0:443?cert=a.pem&key=a.key'", "config/fastrack.rb"] => [tls],
    ["listen 'ssl://0.0.0.0:443?cert=a.pem&key=a.key'", "config/fastrack.rb"] => [tls],
    ["listen 'ssl://0.0.0.0:443', cert: 'a.pem', key: 'a.key'", "config/fastrack.rb"] => [tls],
    ["bind 'ssl://0.0.0.0:443?cert=a.pem,b.pem&key=a.key,b.key'", "config/fastrack.rb"] => [["0.0.0.0:443", true, false, [%w[a.pem a.key], %w[b.pem b.key]]]],
    ["bind 'ssl://localhost:3000'", "config/fastrack.rb"] => [["localhost:3000", true, false, []]],
    ["bind 'ssl://0.0.0.0:443?key=a.key&cert=a.pem&verify_mode=none&no_tlsv1=true&ssl_cipher_filter=!aNULL'", "puma.rb"] => [tls],
    ["ssl_bind '0.0.0.0', '443', cert: 'a.pem', key: 'a.key', verify_mode: 'none'", "puma.rb"] => [tls],
    ["ssl_bind '0.0.0.0', 443, { cert: 'a.pem', key: 'a.key' }\nport 80", "puma.rb"] => [tls, ["0.0.0.0:80", false, false, []]],
    ["bind 'tcp://0.0.0.0:80?proxy_protocol=true'", "puma.rb"] => [["0.0.0.0:80", false, true, []]],
    ["port 80\nbind 'unix:///a.sock'\nset_remote_address proxy_protocol: :v1", "puma.rb"] => [["0.0.0.0:80", false, true, []], ["/a.sock", false, false, []]],
    ["set_remote_address proxy_protocol: :v1", "puma.rb"] => [["0.0.0.0:9292", false, true, []]]
  }.each do |(text, name), expected|
    it "#{text.inspect} in a #{File.basename(name)} names addresses for the proxy" do
      found = configure(text, name)
      expect([places(found), found.proxy?, @said.string]).to eq([expected, true, ""])
    end
  end

  it "have their values" do
    found = configure(<<~RUBY)
      public_files "public"
      sendfile_root "private"
      compress false
      cache_control "/assets/*", "public, max-age=31536000, immutable"
      cache_control "/*.txt", "no-cache"
      trusted_proxies "private", "192.0.2.1"
      public_file_headers "Access-Control-Allow-Origin" => "*", "X-A" => "b c"
      public_links "/srv/shared", "linked"
      force_ssl_except "/up", "/health/*"
    RUBY
    expect(found.public_file_headers).to eq([["Access-Control-Allow-Origin", "*"], ["X-A", "b c"]])
    expect([found.public_links, found.force_ssl_except]).to eq([%w[/srv/shared linked], ["/up", "/health/*"]])
    expect([found.public_files, found.sendfile_root, found.compress]).to eq(["public", "private", false])
    expect(found.cache_control).to eq([["/assets/*", "public, max-age=31536000, immutable"], ["/*.txt", "no-cache"]])
    expect(found.trusted_proxies).to include("10.0.0.0/8", "::1/128", "192.0.2.1")
    expect(configure("", PublicFileHeaders: "X-A: b", ForceSSLExcept: "/up,/a").then { |one| [one.public_file_headers, one.force_ssl_except] })
      .to eq([[%w[X-A b]], %w[/up /a]])
    expect(configure("", TrustedProxies: "10.0.0.0/8,::1", CacheControl: "/assets/* public, max-age=60").then { |one| [one.trusted_proxies, one.cache_control] })
      .to eq([%w[10.0.0.0/8 ::1], [["/assets/*", "public, max-age=60"]]])
  end

  it "acme_server names Let's Encrypt's two directories, or any" do
    require_relative "../../lib/fastrack/proxy/settings"
    { "" => "https://acme-v02.api.letsencrypt.org/directory", "acme_server 'staging'" => "https://acme-staging-v02.api.letsencrypt.org/directory",
      "acme_server 'https://ca.example/dir'" => "https://ca.example/dir" }.each do |text, url|
      found = configure("bind 'ssl://0.0.0.0:443'\ntls_domains 'a.example'\nacme_contact 'ops@a.example'\n#{text}")
      expect(Fastrack::Proxy::Settings.unbound(found).to_h[:acme]).to include(server: url, domains: %w[a.example], contact: "mailto:ops@a.example")
    end
  end

  ["compress true", "h2c true", "public_files 'public'", "sendfile_root 'private'", "listen 'tcp://127.0.0.1:1?proxy_protocol=true'"].each do |text|
    it("#{text.inspect} asks for the proxy") { expect(configure(text).proxy?).to be_truthy }
  end

  ["", "trusted_proxies '10.0.0.0/8'", "cache_control '/a', 'no-cache'", "compress false", "force_ssl true", "listen 80"].each do |text|
    it("#{text.inspect} does not, and nothing of it is loaded") { expect([configure(text).proxy?, defined?(Fastrack::Proxy::Supervisor)]).to match([be_falsy, nil]) }
  end

  {
    "bind 'ssl://0.0.0.0:443?cert=a.pem'" => /needs a key for each cert/, "listen 'ssl://0.0.0.0:443?certs=a'" => /has no setting certs; did you mean cert/,
    "listen '/a.sock', proxy_protocol: true" => /needs proxy_protocol on a port/, "listen 80, cert: 'a', key: 'b'" => %r{has cert without ssl://},
    "trusted_proxies '10.0.0.0/33'" => /trusted_proxies must be networks/, "trusted_proxies 'all'" => /trusted_proxies must be networks/,
    "cache_control '/assets'" => /cache_control must be a pattern of paths/, "cache_control '/a', \"a\\nb: c\"" => /cache_control must be a pattern/,
    "public_file_headers 'a'" => /public_file_headers must be fields such as/, "public_file_headers 'ETag' => 'a'" => /must be fields such as .* none that describes/,
    "public_file_headers 'a' => \"b\\r\\nc: d\"" => /public_file_headers must be fields/, "force_ssl_except 'up'" => %r{force_ssl_except must be paths, such as /up},
    "proxy_threads 0" => /proxy_threads must be a whole number/, "max_ssl_rate 0" => /max_ssl_rate must be a whole number/
  }.each do |text, message|
    it("#{text.inspect} is refused") { expect { configure(text) }.to raise_error(Fastrack::ConfigurationError, message) }
  end
end
