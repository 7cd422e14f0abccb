# frozen_string_literal: true

RSpec.describe "Capybara's server", skip: AppRequirements.missing("Capybara", 'require "capybara"') do
  driver = "require 'fastrack/capybara'\n#{AppRequirements::HTTP_DRIVER}"

  it "is Fastrack in the process of the tests, with nothing on its outputs if it is silent" do
    result = InProcess.run(driver + <<~'RUBY')
      Capybara.server = :fastrack, { Silent: true, Threads: "0:2" }
      app = lambda do |env|
        raise ArgumentError, "the app's" if env["PATH_INFO"] == "/raise"
        [200, { "content-type" => "text/html" }, ["<p>#{Process.pid} #{env["rack.multithread"]} #{env["SERVER_SOFTWARE"]}</p>"]]
      end
      session = Capybara::Session.new(:http, app)
      session.visit("/")
      served = session.html.include?("<p>#{Process.pid} true")
      server = Net::HTTP.get_response(URI("#{session.server.base_url}/"))["server"]
      session.visit("/raise")
      raised = begin
        session.reset!
      rescue ArgumentError => e
        e.message
      end
      # As it is at the end of a run: a request has begun, and connections are kept.
      Thread.new { Net::HTTP.start(session.server.host, session.server.port) { |http| http.get("/") && sleep } }
      puts({ served: served, server: server, raised: raised, helpers: helpers, booted: Capybara.current_session.mode }.to_json)
    RUBY
    seen = { served: true, server: "Fastrack", raised: "the app's", helpers: 2, booted: "rack_test" }
    expect([result.status.exitstatus, result.output.lines.grep_v(/: warning: /)]).to eq([0, ["#{JSON.generate(seen)}\n"]])
  end

  it "says where it listens unless it is silent, and takes the options of Fastrack::Server" do
    result = InProcess.run(driver + <<~'RUBY')
      Capybara.server = :fastrack, { keep_alive: false }
      session = Capybara::Session.new(:http, ->(_env) { [200, {}, ["served"]] })
      session.visit("/")
      response = Net::HTTP.get_response(URI("#{session.server.base_url}/"))
      puts "#{session.server.port} #{response["connection"]}"
      exit 4
    RUBY
    lines = result.output.lines.grep_v(/: warning: /)
    port = lines.last[/\d+/]
    expect([result.status.exitstatus, lines.map { |line| line.sub(/ \d+\.\d+\.\d+ /, " ") }]).to eq(
      [4, ["Fastrack is listening on 127.0.0.1:#{port}\n", "#{port} close\n"]]
    )
  end

  { "four requests at a time, as Capybara's Puma does" => [4, "{ Silent: true }"],
    "as many as Puma's word says" => [3, '{ Silent: true, Threads: "0:3" }'],
    "as many as MaxThreads says" => [5, "{ Silent: true, max_threads: 5 }"] }.each do |what, (count, options)|
    it "answers #{what}" do
      result = InProcess.run(driver + <<~RUBY)
        Capybara.server = :fastrack, #{options}
        lock = Mutex.new
        inside = most = 0
        app = lambda do |_env|
          lock.synchronize { most = [most, inside += 1].max }
          sleep 0.005 until most >= #{count}
          lock.synchronize { inside -= 1 }
          [200, {}, ["served"]]
        end
        server = Capybara::Session.new(:http, app).server
        Array.new(#{count} * 2) { Thread.new { Net::HTTP.get(URI("\#{server.base_url}/")) } }.each(&:value)
        puts most
      RUBY
      expect(result.output.lines.last).to eq("#{count}\n")
    end
  end
end
