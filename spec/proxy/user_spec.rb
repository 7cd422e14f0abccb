# frozen_string_literal: true

require "etc"

RSpec.describe "the proxy: what the app's user can do to it", once: "the program knows no Ruby" do
  def server = @server

  # Runs Ruby in the app, and gives the result.
  app = <<~RUBY
    run(lambda do |env|
      found = begin
        eval(Rack::Utils.unescape(env["QUERY_STRING"]))
      rescue SystemCallError => e
        e.class
      end
      [200, { "content-type" => "text/plain" }, [found.to_s]]
    end)
  RUBY

  secrets = { "SECRET_KEY_BASE" => "s3cret", "DATABASE_URL" => "postgres://u:p@h/d", "TZ" => "UTC" }

  define_method(:launch) do |users, mode: 0o644|
    skip "takes root" unless Process.euid.zero?

    config = "bind 'ssl://127.0.0.1:0?cert=a.pem&key=a.key'\nmax_workers 1\n#{users}"
    @server = Server.launch(ru: app, fastrack: true, files: { **Edge.files, "app.rb" => "" }, config: config, env: secrets,
                            options: { "Host" => nil, "Port" => nil })
    File.chown(Etc.getpwnam("daemon").uid, nil, server.file("a.key"))
    File.chmod(mode, server.file("a.key"))
    server.await_ready
  end

  def in_app(code) = Edge.curl(server, "-G", "--data-urlencode", code).first

  it "its environment is a list, which has no secret of the app's" do
    @server = Edge.start(env: secrets)
    found = File.read("/proc/#{Edge.proxy(server)}/environ").split("\0").map { |one| one[/[^=]+/] } if Process.euid.zero?
    skip "takes root" unless found
    expect(found).to include("TZ", "MALLOC_TRIM_THRESHOLD_")
    expect(found & %w[SECRET_KEY_BASE DATABASE_URL PATH HOME]).to eq([])
  end

  it "ProxyUser beside User: the app can read neither its key nor its memory, nor connect to the workers' socket" do
    launch("user 'nobody'\nproxy_user 'daemon'\n", mode: 0o400)
    proxy = Edge.proxy(server)
    socket = File.read("/proc/net/unix")[%r{\S+/#{server.master}\.proxy$}]
    expect(File.stat("/proc/#{proxy}/environ").uid).to eq(0)
    expect(File.read("/proc/#{proxy}/status")[/^Uid:\s+(\d+)/, 1].to_i).to eq(Etc.getpwnam("daemon").uid)
    expect(in_app("Process.euid")).to eq(Etc.getpwnam("nobody").uid.to_s)
    expect(in_app("File.read('a.key')")).to eq("Errno::EACCES")
    expect(in_app("File.read('/proc/#{proxy}/environ')")).to eq("Errno::EACCES")
    expect(in_app("UNIXSocket.new('#{socket}')")).to eq("Errno::EACCES")
  end

  it "User alone: the app can neither read its memory nor take its descriptors" do
    launch("user 'daemon'\n")
    proxy = Edge.proxy(server)
    expect(in_app("File.read('/proc/#{proxy}/environ')")).to eq("Errno::EACCES")
    expect(in_app("Dir.children('/proc/#{proxy}/fd')")).to eq("Errno::EACCES")
  end

  it "`fastrack check` tells where the app and the proxy are one user's" do
    Dir.mktmpdir do |dir|
      Edge.files.merge("config.ru" => "run ->(_) { [200, {}, []] }", "config/fastrack.rb" => "bind 'ssl://127.0.0.1:0?cert=a.pem&key=a.key'\n")
          .each { |name, text| Folder.write(dir, name, text) }
      text, status = Open3.capture2e(Server::CLEAN_ENVIRONMENT, *Server::FASTRACK, "check", "-E", "production", chdir: dir)
      expect([text, status.exitstatus]).to match([/^proxy: it runs as the app's user, who can read its private keys: start as root, with ProxyUser beside User$/, 0])
    end
  end
end
