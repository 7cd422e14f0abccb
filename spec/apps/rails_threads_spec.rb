# frozen_string_literal: true

require_relative "../support/app_rails"

# What Rails keeps for each thread, and what has threads of its own, beside five requests at once in each worker.
RSpec.describe "A Rails app with MaxThreads", skip: AppRails.missing do
  threads = 5

  controller = <<~'RUBY'
    require "active_job/railtie"

    class Current < ActiveSupport::CurrentAttributes
      attribute :visitor
    end

    class NoteJob < ActiveJob::Base
      self.queue_adapter = :async

      def perform(text) = Note.create!(text: "#{text} #{Current.visitor.inspect}")
    end

    class TrialsController < ActionController::Base
      # Raises if anything of another request's is here.
      before_action do
        raise "Current.visitor is #{Current.visitor} of another request" if Current.visitor
        raise "not in the executor" unless Rails.application.executor.active?

        Current.visitor = params[:name]
      end
      after_action { raise "Current.visitor has become #{Current.visitor}" unless Current.visitor == params[:name] }

      def current
        wait
        render plain: [Current.visitor, ActiveRecord::Base.connection.query_cache_enabled].join(" ")
      end

      def job
        NoteJob.perform_later(params[:name])
        wait
        render plain: Current.visitor
      end

      private

      def wait = ActiveRecord::Base.connection.select_value("SELECT 1 FROM pg_sleep(0.01)")
    end
  RUBY

  include_context "with a Rails app"

  before(:context) do
    File.write(@app.path("app/controllers/trials_controller.rb"), controller)
    routes = @app.path("config/routes.rb")
    File.write(routes, File.read(routes).sub(/^end\s*\z/, "  %w[current job].each { |name| get \"trials/\#{name}\", to: \"trials\#\#{name}\" }\nend\n"))
    @server = @app.serve(options: { MaxWorkers: 2, MaxThreads: threads }, env: { "RAILS_MAX_THREADS" => threads.to_s })
    @server.await_workers(2)
  end

  # What so many clients get at a time, each so often; by the name that is only theirs.
  def trials(action, clients: 10, requests: 8)
    all = Array.new(clients) do |client|
      Thread.new { Array.new(requests) { |nr| "#{action}-#{client}-#{nr}".then { |name| [name, @server.get("/trials/#{action}?name=#{name}")] } } }
    end
    all.flat_map(&:value).each { |name, answer| expect(answer.status).to eq(200), "#{name}: #{answer.body[0, 300]}\n#{@server.log[-3000..]}" }
  end

  def bodies(...) = trials(...).to_h { |name, answer| [name, answer.body] }

  it "has as many requests at once as there are threads, and as many database connections as it takes" do
    inside = Array.new(2 * threads) { Thread.new { @server.get("/connection") } }
    before = @postgres.backends.size
    answers = inside.map { |one| JSON.parse(one.value.body) }
    # On a busy machine it may take some until two are there at once.
    eventually do
      answers += Array.new(24) { Thread.new { JSON.parse(@server.get("/connection").body) } }.map(&:value)
      answers.map { |one| one["backend"] }.uniq.size > 2
    end
    # The pools' size: see config/database.yml.
    expect([before, @postgres.backends.size].max).to be <= 2 * (threads + 1)
  end

  it "keeps CurrentAttributes, the executor and the query cache of each request to itself" do
    expect(bodies("current")).to all(satisfy { |name, body| body == "#{name} true" })
  end

  it "runs jobs of Active Job's async adapter beside requests, without their attributes" do
    names = trials("job", clients: 6, requests: 5).map(&:first)
    expected = names.map { |name| "#{name} nil" }.sort
    eventually(60, -> { @server.log[-3000..] }) { @postgres.query("SELECT text FROM notes WHERE text LIKE 'job-%'").flatten.sort == expected }
  end

  it "talks to WebSockets by full hijack and Action Cable's worker pool, while requests wait in all threads (C5)" do
    sockets = Array.new(6) { AppRails::Notes.new(@server) }
    requests = Thread.new { bodies("current") }
    sockets.each_with_index do |socket, nr|
      socket.say("hello #{nr}")
      expect(sockets.map { |one| one.heard["text"] }).to all(eq("hello #{nr}"))
    end
    expect(requests.value).to all(satisfy { |name, body| body == "#{name} true" })
    sockets.first.close
    expect(sockets.first.received_close?).to be(true)
    sockets.drop(1).each(&:close)
  end

  describe "by bin/rails server -u fastrack" do
    # How many requests it has at a time, as its log says.
    def at_once(env)
      server = @app.rails_server(%w[-e production -b 127.0.0.1 -p 0], env: { "WEB_CONCURRENCY" => "1", **env })
      server.await_workers(1)
      expect(Array.new(3) { Thread.new { server.get("/trials/current?name=here") } }.map { |one| one.value.body }).to eq(["here true"] * 3)
      server.log[/workers answer up to \d+ requests at once.*/]
    ensure
      server&.stop
    end

    it "has as many threads as config/fastrack.rb says, else RAILS_MAX_THREADS" do
      file = @app.path("config/fastrack.rb")
      before = File.read(file)
      expect(at_once("RAILS_MAX_THREADS" => "2")).to eq("workers answer up to 2 requests at once (RAILS_MAX_THREADS)")
      File.write(file, "#{before}\nmax_threads ENV.fetch(\"RAILS_MAX_THREADS\", 3)\n")
      expect(at_once({})).to eq("workers answer up to 3 requests at once")
      expect(at_once("RAILS_MAX_THREADS" => "4")).to eq("workers answer up to 4 requests at once")
    ensure
      File.write(file, before) if before
    end
  end

  it "has the executor complete each request once, also while workers are recycled" do
    server = @app.serve(options: { MaxWorkers: 2, MaxThreads: threads, MaxRequestPerChild: 25 }, env: { "RAILS_MAX_THREADS" => threads.to_s })
    server.await_workers(2)
    answers = Array.new(8) { |client| Thread.new { Array.new(20) { |nr| server.get("/trials/current?name=#{client}-#{nr}") } } }.flat_map(&:value)
    expect(answers.map(&:status)).to all(eq(200))
    eventually { server.log.lines.grep(/\A#{AppRails::COMPLETED} \d+\n\z/).size == answers.size }
  end

  it "reloads changed code in development, while requests wait in all threads" do
    server = @app.rails_server(%w[-p 0], env: { "WEB_CONCURRENCY" => "1", "RAILS_MAX_THREADS" => threads.to_s })
    page = @app.path("app/controllers/pages_controller.rb")
    text = ->(nr) { "class PagesController < ActionController::Base\n  def index = sleep(0.01) && render(plain: \"page #{nr}\")\nend\n" }
    File.write(page, text.call(0))
    File.write(@app.path("config/routes.rb"), File.read(@app.path("config/routes.rb")).sub(/^end\s*\z/, "  get \"page\", to: \"pages#index\"\nend\n"))
    eventually(60) { server.get("/page").body == "page 0" }
    loop = ClientLoop.run(server, paths: ["/page"] * 6, pause: 0) do
      (1..3).each do |nr|
        File.write(page, text.call(nr))
        # Rails compares times of change in seconds on some file systems.
        File.utime(Time.now + nr, Time.now + nr, page)
        eventually(60) { server.get("/page").body == "page #{nr}" }
      end
    end
    expect([loop.failures, loop.bodies]).to match([[], all(match(/\Apage [0-3]\z/))])
  end
end
