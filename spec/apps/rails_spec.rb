# frozen_string_literal: true

require "net/http"
require_relative "../support/app_browser"
require_relative "../support/app_rails"

RSpec.describe "A Rails app with PostgreSQL", skip: AppRails.missing do
  include_context "with a Rails app"

  before(:context) do
    @server = @app.serve(options: { MaxWorkers: 3 }, warm_up: true)
    @server.await_workers(3)
  end

  before { @visitor = AppBrowser.new(@server) }

  after { @visitor.close }

  # How many requests Rails has done with.
  def completed = @server.log.lines.grep(/\A#{AppRails::COMPLETED} \d+\n\z/).size

  # What /connection says, asked by so many clients at a time, so often each.
  def connections(clients: 6, requests: 15)
    Array.new(clients) do
      Thread.new { Array.new(requests) { JSON.parse(@server.get("/connection").body) } }
    end.flat_map(&:value)
  end

  # The same, until each worker has answered.
  def connections_of_all
    seen = []
    eventually(60) { (@server.workers - seen.concat(connections).map { |one| one["worker"] }).empty? }
    seen
  end

  # How many those are once it has done with all that have begun, those of other examples, too.
  def all_completed = eventually { completed.then { |count| count if count == @server.log.scan(/ Started [A-Z]+ "/).size } }

  it "is asked for its root before workers are forked, as warm_up true says, and keeps none of those connections" do
    expect(@server.log).to match(/fastrack: warm-up: 1 path, \d+ requests in \S+ s$/)
    expect(@server.log).not_to include("would share")
  end

  describe "connections to the database, with before_fork and after_fork in its ConfigFile" do
    it "has one for each worker, and none in the master" do
      seen = connections_of_all
      by_worker = seen.group_by { |one| one["worker"] }.transform_values { |ones| ones.map { |one| one["backend"] }.uniq }
      expect(by_worker.keys).to match_array(@server.workers)
      expect([by_worker.values.map(&:size), by_worker.values.flatten.uniq.size]).to match([all(eq(1)), 3])
      # The boot has made the table, so the master has had one.
      expect(@postgres.query("SELECT to_regclass('notes')")).to eq([["notes"]])
      # Those of another example's server may take a moment to go.
      backends = by_worker.values.flatten.sort
      eventually(20, -> { "connected are #{@postgres.backends}, the workers have #{backends}" }) { @postgres.backends == backends }
    end

    it "has a new one in a worker that replaces another" do
      before = connections_of_all
      Process.kill(:TERM, before.first["worker"])
      eventually { !ProcessTable.alive?(before.first["worker"]) && @server.workers.size == 3 }
      after = connections_of_all
      expect(after.map { |one| one["worker"] }).not_to include(before.first["worker"])
      fresh = after.map { |one| one["backend"] }.uniq - before.map { |one| one["backend"] }
      expect(fresh.size).to eq(1)
      eventually { @postgres.backends.size == 3 }
    end
  end

  # Rails gives connections back, and does what else is to be done after a request, when close is called on the body; if it
  # is not, only when the worker's next request begins.
  describe "the end of a request (A15)" do
    { "a page" => %w[GET /notes], "a page without its body" => %w[HEAD /notes], "JSON" => %w[GET /notes.json],
      "a file" => %w[GET /source], "a redirection" => %w[GET /old], "a page that is not there" => %w[GET /nowhere],
      "a form that is refused" => %w[POST /notes] }.each do |what, (verb, path)|
      it "comes right after the response, for #{what}" do
        before = all_completed
        @server.request(verb, path, { "Content-Length" => 0 })
        eventually { completed == before + 1 }
      end
    end
  end

  describe "pages" do
    it "takes a form, redirects (303), and shows the flash once" do
      token = @visitor.visit("/").token
      page = @visitor.submit("/notes", { authenticity_token: token, text: "Tea & <scones>" }, "--location")
      expect(page.status).to eq(200)
      expect(page.body).to include("<li>Tea &amp; &lt;scones&gt;</li>").and match(/Added by worker \d+/)
      expect(@visitor.visit("/").body).to include("<li>Tea &amp; &lt;scones&gt;</li>")
      expect(@visitor.visit("/").body).not_to include("Added by")
    end

    it "answers what fails inside with the app's 500 page, and the log has the reason" do
      token = @visitor.visit("/").token
      # NUL cannot be in a text of PostgreSQL's.
      page = @visitor.visit("/notes", "--data", "authenticity_token=#{CGI.escape(token)}&text=%00")
      expect([page.status, page.body]).to eq([500, File.read(@app.path("public/500.html"))])
      expect(@server.log.lines.grep(/ArgumentError \(string contains null byte\)/).size).to eq(1)
      expect(@visitor.visit("/").status).to eq(200)
    end

    it "answers conditional requests with 304: an action's (ETag) and a file's (Last-Modified)" do
      { "/notes.json" => %w[ETag If-None-Match], "/robots.txt" => %w[Last-Modified If-Modified-Since] }.each do |path, (tag, condition)|
        first = @server.get(path)
        second = @server.get(path, { condition => first.headers[tag] })
        expect([first.status, second.status, second.body]).to eq([200, 304, ""])
      end
    end
  end

  it "serves one of public/, a part of it (206), and one that an action sends (bodies with to_path)" do
    part = @server.get("/robots.txt", { "Range" => "bytes=0-9" })
    expect([part.status, part.body]).to eq([206, "User-agent"])
    expect(@server.get("/robots.txt").body).to eq(File.binread(@app.path("public/robots.txt")))
    expect(@server.get("/source").body).to eq(File.binread(@app.path("app/controllers/notes_controller.rb")))
  end

  describe "ActionController::Live" do
    it "has each part sent when it is written" do
      @server.connect do |socket|
        socket.write("GET /progress?file=go HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        bytes = +""
        bytes << socket.readpartial(4096) until bytes.include?("waiting for go\n")
        File.write(@app.path("tmp/go"), "")
        bytes << socket.read
        expect(HttpResponse.parse(bytes).body).to match(/\Awaiting for go\n\d+ notes\n\z/)
      end
    end

    it "is told when the client is gone before the end, and ends" do
      before = all_completed
      3.times do |nr|
        @server.connect do |socket|
          socket.write("GET /progress?file=gone-#{nr} HTTP/1.1\r\nHost: localhost\r\n\r\n")
          socket.readpartial(1)
        end
        File.write(@app.path("tmp/gone-#{nr}"), "")
      end
      eventually { completed == before + 3 }
    end
  end

  it "reaches all of ActionCable's WebSockets by the async adapter in development, where there is one process" do
    app = AppRails.new(@postgres)
    File.delete(app.path("config/fastrack.rb"))
    File.write(app.path("config/cable.yml"), "development:\n  adapter: async\n")
    server = app.rails_server(%w[-p 0])
    sockets = Array.new(3) { AppRails::Notes.new(server) }
    sockets.last.say("hello")
    heard = sockets.map(&:heard)
    expect(heard.uniq).to eq(["text" => "hello", "worker" => server.await_workers(1).first])
    sockets.each(&:close)
    server.stop
  ensure
    app&.remove
  end

  describe "bin/rails server -u fastrack (A1)" do
    it "serves in production, with its own host and port, and WEB_CONCURRENCY" do
      server = @app.rails_server(%w[-e production -b 127.0.0.1 -p 0], env: { "WEB_CONCURRENCY" => "2" })
      server.await_workers(2)
      expect([server.log, server.get("/notes").status]).to match([include("Booting Fastrack"), 200])
      expect(server.stop(:TERM)).to be_success
      expect(server.log).to include("Exiting")
    end

    it "serves at a path, or a URL, and says which flag is wrong" do
      Dir.mktmpdir do |dir|
        server = @app.rails_server(["-e", "production", "-b", "#{dir}/rails.sock"])
        expect([server.path, server.get("/notes").status]).to eq(["#{dir}/rails.sock", 200])
        server.stop
      end
      server = @app.rails_server(%w[-e production -b tcp://127.0.0.1:0])
      expect([server.host, server.get("/notes").status]).to eq(["127.0.0.1", 200])
      server.stop
      expect { @app.rails_server(%w[-e production -b ftp://127.0.0.1:0]) }.to raise_error(Server::Failed, /^fastrack: -b must be a port, host:port/)
    end

    it "serves in development, and has its pid file until the end" do
      server = @app.rails_server(%w[-p 0], env: { "WEB_CONCURRENCY" => "1" })
      pid_file = @app.path("tmp/pids/server.pid")
      expect([File.read(pid_file).to_i, server.get("/notes").status]).to eq([server.master, 200])
      expect(server.stop(:INT)).to be_success
      expect(File).not_to exist(pid_file)
    end
  end
end
