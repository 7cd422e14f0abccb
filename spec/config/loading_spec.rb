# frozen_string_literal: true

RSpec.describe "Loading", exec: "what is loaded" do
  # Runs Ruby with the project's lib and nothing else of it.
  def ruby(script) = Open3.capture2e(Server::CLEAN_ENVIRONMENT, RbConfig.ruby, "-w", "-I", Server::LIB, "-e", script)

  # The module that holds the handlers of the Rack in use.
  let(:registry) { ruby("begin; require 'rackup/handler'; print 'Rackup::Handler'; rescue LoadError; print 'Rack::Handler'; end").first }

  %w[Fastrack fastrack].each do |name|
    it "A1 rackup -s #{name} serves" do
      server = Server.start(ru: Rackups::PID, name: name)
      expect(server.await_workers(5)).to include(server.get.body.to_i)
    end

    it "A1 requiring the gem's name makes #{name} known to the Rack in use" do
      output, status = ruby("require 'rhebok-rs'; handler = #{registry}.get('#{name}'); print handler.class, ' ', handler")
      expect([output, status.success?]).to eq(["Class #{registry}::Fastrack", true])
    end
  end

  it "A1 a handler is found by name with nothing required before" do
    first = registry == "Rackup::Handler" ? "rackup" : "rack/handler"
    output, = ruby("require '#{first}'; print #{registry}.get('fastrack')")
    expect(output).to eq("#{registry}::Fastrack")
  end

  it "A1 the gem can be required where the extension is not built" do
    output, status = ruby("require 'rhebok-rs'; print $LOADED_FEATURES.grep(/fastrack\\.so/).size")
    expect([output, status.success?]).to eq(["0", true])
  end

  it "B-faults a server whose extension is not built ends with one line and status 1" do
    Dir.mktmpdir do |dir|
      Dir.glob("**/*.rb", base: Server::LIB).each do |file|
        FileUtils.mkdir_p(File.join(dir, File.dirname(file)))
        FileUtils.cp(File.join(Server::LIB, file), File.join(dir, file))
      end
      output, status = Open3.capture2e(Server::CLEAN_ENVIRONMENT, RbConfig.ruby, "-w", "-I", dir, "-e",
                                       "require 'rhebok-rs'; Fastrack::Handler.run(->(_env) {}, Port: 0)")
      expect(output).to match(/\Afastrack: the native extension of Fastrack is not built for Ruby [^\n]+\n\z/)
      expect(status.exitstatus).to eq(1)
    end
  end

  it "A1 Rack::Handler::Fastrack is there on every Rack, and warns of nothing" do
    expect(ruby("require 'rack/handler/fastrack'; print Rack::Handler::Fastrack.respond_to?(:run)").first).to eq("true")
  end

  # The calls of Rack 2's users (a Hash) and of rackup 2's (keywords).
  { "a Hash" => "{ Host: '127.0.0.1', Port: 0, MaxWorkers: 1 }",
    "keywords" => "Host: '127.0.0.1', Port: 0, MaxWorkers: 1" }.each do |kind, options|
    it "A1 run takes #{kind}, yields the launcher, and returns once that is stopped" do
      output, status = ruby(<<~RUBY)
        require "rhebok-rs"
        #{registry}::Fastrack.run(->(_env) { [200, {}, []] }, #{options}) do |launcher|
          Thread.new { launcher.stop }
        end
        puts "returned"
      RUBY
      # In between its workers may have become ready, or not. They do not have the thread that stops the launcher, and a line says so.
      expect(output.lines.map(&:chomp).grep_v(/ no worker has the thread /).values_at(0, -1)).to match([/\AFastrack starts Listening on 127.0.0.1:\d+ Pid:\d+\z/, "returned"])
      expect(status).to be_success
    end
  end

  { "shutdown, which rackup calls on INT," => "Thread.new { handler.shutdown }", "a launcher that is stopped more than once" => "it.stop; it.stop" }
    .each do |what, code|
    it "A1 #{what} ends the server that runs" do
      output, status = ruby(<<~RUBY)
        require "rhebok-rs"
        require "fastrack/handler"
        handler = #{registry}::Fastrack
        kept = nil
        handler.run(->(_env) { [200, {}, []] }, Host: "127.0.0.1", Port: 0) { |it| kept = it; #{code} }
        kept.stop
        puts "returned"
      RUBY
      expect([output.lines.last, status.success?]).to eq(["returned\n", true])
    end
  end

  it "A1 handlers of signals that were set before are back when run has returned" do
    output, = ruby(<<~RUBY)
      require "rhebok-rs"
      %w[TERM HUP].each { |name| trap(name) { puts "mine: \#{name}" } }
      Fastrack::Handler.run(->(_env) { [200, {}, []] }, Host: "127.0.0.1", Port: 0, &:stop)
      %w[TERM HUP].each { |name| Process.kill(name, Process.pid) }
    RUBY
    expect(output.lines.last(2)).to eq(["mine: TERM\n", "mine: HUP\n"])
  end

  it "A1 rackup's help names the options" do
    help, = Open3.capture2e(RbConfig.ruby, "-I", Server::LIB, "-S", "rackup", "-s", "Fastrack", "--help")
    expect(help).to include("MaxRequestPerChild", "ChunkedTransfer", "(default: 300.0)")
  end
end
