# frozen_string_literal: true

# Threads that an app begins while it is loaded are in generation 0, which serves nobody.
RSpec.describe "Threads that an app begins while it loads", once: "the same in every Ruby" do
  app = <<~'RUBY'
    poller = Thread.new { sleep }
    poller.name = "flag poller"
    Thread.new { sleep }
    Thread.new { sleep }.thread_variable_set(:fork_safe, true)
    Thread.new { nil }.join
    run ->(env) { [200, {}, [Thread.list.size.to_s]] }
  RUBY

  { "the fastrack command" => { fastrack: true, config: "max_workers 2" }, "rackup" => { options: { MaxWorkers: 2 } },
    "a puma.rb without workers" => { fastrack: true, options: { ConfigFile: "puma.rb", MaxWorkers: nil }, files: { "puma.rb" => "before_fork { 1 }\nplugin :tmp_restart" } } }
    .each do |what, start|
    it "are one line each, with file and line, with #{what}, and again after a HUP that loads the app" do
      server = Server.ready(ru: app, **start)
      lines = server.log.scan(/no worker has the thread that the app has begun at \S*?([\w.]+:\d+(?: \(.*\))?): begin it in after_fork$/).flatten
      expect(lines).to contain_exactly("config.ru:1 (flag poller)", "config.ru:3")
      next if what == "rackup"

      server.signal(:HUP)
      server.await_log(/no worker has the thread/, 4)
    end
  end

  it "are no line where workers load the app themselves, and where there are none" do
    server = Server.ready(ru: app, fastrack: true, options: { MaxWorkers: 1, PreloadApp: false })
    expect(server.log).not_to include("no worker has")
    debugged = Server.ready(ru: "require 'debug/prelude'\nrequire 'timeout'\nTimeout.timeout(9) { 1 }\n#{Rackups::PID}", fastrack: true, options: { MaxWorkers: 1 })
    expect(debugged.log).not_to include("no worker has")
  end
end
