# frozen_string_literal: true

RSpec.describe "bin/serve", once: "a newcomer's script" do
  def serve(ru, *arguments, **env)
    server = Server.launch(ru: ru, command: ["#{Server::ROOT}/bin/serve", *arguments], env: { RUBY: RbConfig.ruby, **env })
    # By then bin/setup has looked at everything.
    eventually(120, -> { server.log }) { server.log.include?("starting ") }
    server.await_listening
  end

  it "serves the example on the port and with the workers that are asked for, and TERM ends it with nothing left" do
    FreePort.keep do |port|
      server = serve("", PORT: port.to_s, MAX_WORKERS: "3")
      expect(server.log).to include("http://127.0.0.1:#{port}/")
      workers = server.await_workers(3)
      expect(workers).to include(server.get.body[/worker.*process (\d+), of master #{server.master}/, 1].to_i)
      expect([server.stop.exitstatus, server.processes]).to eq([0, []])
    end
  end

  it "serves an app of its user's" do
    server = serve(Rackups::PID, "config.ru", PORT: "0", MAX_WORKERS: "1")
    expect(server.await_workers(1)).to eq([server.get.body.to_i])
  end
end

RSpec.describe "bin/lane ruby40", once: "a script" do
  { "no FASTRACK_RUBY40" => [nil, "it takes a Ruby of yours: FASTRACK_RUBY40=PREFIX, where PREFIX/bin/ruby is"],
    "a relative one" => ["here", "FASTRACK_RUBY40 must be an absolute path"],
    "one without Ruby" => ["/nowhere", "there is no /nowhere/bin/ruby"] }.each do |what, (prefix, reason)|
    it "is not to be had with #{what}, which its status and its line say" do
      output, status = Open3.capture2e({ "FASTRACK_RUBY40" => prefix }, "#{Server::ROOT}/bin/lane", "ruby40", "true")
      expect([output, status.exitstatus]).to eq(["lane: lane ruby40 is not to be had here: #{reason}\n", 69])
    end
  end
end
