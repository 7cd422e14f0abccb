# frozen_string_literal: true

# An app that `rails new` has made here, and that is changed as the manual says.
RSpec.describe "A new Rails app", skip: AppRequirements.missing("Rails 7.2 with sqlite3",
                                                                'require "rails"; require "sqlite3"; require "bundler"; exit Rails.gem_version >= Gem::Version.new("7.2")') do
  options = %w[--api --minimal --skip-git --skip-bundle --skip-rubocop --skip-brakeman --skip-dev-gems --quiet]

  before(:context) do
    @dir = Dir.mktmpdir("fastrack-rails-new")
    run("rails", "new", "shop", *options, chdir: @dir)
    @app = File.join(@dir, "shop")
    gemfile = File.read(path("Gemfile")).lines.grep(/\A(?:source|gem "(?:rails|sqlite3)")/).join
    File.write(path("Gemfile"), "#{gemfile}gem \"rhebok-rs\", path: #{Server::ROOT.inspect}\n")
    run("bundle", "install", "--local")
  end

  after(:context) { FileUtils.remove_entry(@dir) if @dir }

  def path(name) = File.join(@app, name)

  def environment
    Server::CLEAN_ENVIRONMENT.merge("BUNDLE_GEMFILE" => @app && path("Gemfile"), "BUNDLE_SILENCE_ROOT_WARNING" => "1", "SECRET_KEY_BASE" => "0123456789abcdef" * 4)
  end

  def run(*words, chdir: @app)
    variables = chdir == @app ? environment : environment.merge("BUNDLE_GEMFILE" => nil)
    output, status = Open3.capture2e(variables, *words, chdir: chdir)
    raise "#{words.join(" ")}:\n#{output}" unless status.success?

    output
  end

  # What the generator, which is run twice in a folder, makes of a file there, and what it leaves when it is undone. Without an app, that is quick.
  def generated(text, name, folder)
    file = Folder.write(@dir, File.join("files", File.basename(name), folder, name), text)
    run("ruby", "-I", Server::LIB, "-e", <<~'RUBY', file.delete_suffix("/#{name}"), chdir: @dir)
      require "rails/generators"
      require "generators/fastrack/install/install_generator"
      generator = Fastrack::Generators::InstallGenerator
      2.times { generator.start(%w[--force --quiet], destination_root: ARGV.first) }
      FileUtils.cp_r("#{ARGV.first}/.", "#{ARGV.first}-generated")
      generator.start(%w[--quiet], destination_root: ARGV.first, behavior: :revoke)
    RUBY
    [File.read(file.sub(%r{/(?=#{Regexp.escape(name)}\z)}, "-generated/")), files(file.delete_suffix("/#{name}"))]
  end

  # Texts by name.
  def files(folder) = Dir.glob("**/*", base: folder).select { |name| File.file?(File.join(folder, name)) }.to_h { |name| [name, File.read(File.join(folder, name))] }

  # Bundler and Rails take a while to start.
  def serve(*words, env: {})
    server = Server.launch(ru: "", env: environment.merge(env), command: ["sh", "-c", 'cd "$0" && exec "$@"', @app, *words])
    eventually(120, -> { server.log }) { server.ended? || server.log.include?("Fastrack is ready") }
    server
  end

  def up(server) = server.get("/up", { "X-Forwarded-Proto" => "https" }).status

  it "is served with its config/puma.rb as it is" do
    server = serve("bundle", "exec", "fastrack", env: { "RAILS_ENV" => "production", "PORT" => "0" })
    expect([up(server), server.log.lines.first]).to eq([200, "loading from config_file:config/puma.rb\n"])
  end

  it "is served by bin/rails server, whose -p goes before the file's port, and restarted in its process by bin/rails restart" do
    server = serve("bin/rails", "server", "-u", "fastrack", "-p", "0", "-b", "127.0.0.1", env: { "PORT" => "1" })
    expect([up(server), server.log]).to match([200, include("Fastrack is ready Workers:1")])
    run("bin/rails", "restart")
    eventually(120, -> { server.log }) { server.log.scan("Fastrack is ready").size == 2 }
    expect([server.master, up(server)]).to eq([server.pid, 200])
  end

  it "is served by bin/rails server with RACKUP_HANDLER, which is how the generator changes Rails' Dockerfile" do
    server = serve("bin/rails", "server", "-b", "127.0.0.1", env: { "RACKUP_HANDLER" => "fastrack", "RACK_HANDLER" => "fastrack", "PORT" => "0", "RAILS_ENV" => "production" })
    expect([up(server), server.log]).to match([200, /^Fastrack is ready Workers:1 /])
  end

  describe "with bin/rails generate fastrack:install" do
    before(:context) do
      FileUtils.rm_f(%w[Procfile bin/dev].map { |name| path(name) })
      @before = files(@app).reject { |name, _| name.match?(%r{\A(?:tmp|log|storage)/}) }
      @output = run("bin/rails", "generate", "fastrack:install")
    end

    it "has the file, the Procfile's line and bin/dev, and is told of config/puma.rb" do
      expect(@output).to match(%r{carried +threads, port, plugin :tmp_restart, pidfile from config/puma\.rb, which is no longer read; delete it$})
      expect(File.read(path("Procfile"))).to eq("web: bundle exec fastrack -e ${RAILS_ENV:-${RACK_ENV:-production}}\n")
      expect([File.read(path("bin/dev")), File.executable?(path("bin/dev"))]).to match([/^exec bin\/rails server -u fastrack "\$@"$/, true])
    end

    it "has the workers, threads and plugins of config/puma.rb, its hooks and comments, and no two words for one thing" do
      text = File.read(path("config/fastrack.rb"))
      expect(text).to include('max_workers ENV.fetch("WEB_CONCURRENCY", 1)', "threads threads_count, threads_count\n", "plugin :tmp_restart\n")
      expect(text).to end_with(File.read(path("config/puma.rb")))
      expect(text.scan(/^pid(?:file)? .*/)).to eq(['pidfile ENV["PIDFILE"] if ENV["PIDFILE"]'])
      puma = "# frozen_string_literal: true\n\ncount = 2 # of them\nworkers count\nbefore_fork { puts '# no comment' } # here\n"
      generated(puma, "config/puma.rb", "carried")
      text = File.read(File.join(@dir, "files/puma.rb/carried-generated/config/fastrack.rb"))
      expect(text).to end_with(puma.lines.drop(2).join)
      expect([text.scan(/^.*frozen_string_literal/).size, text.scan(/^ *(?:max_)?workers\b.*/)]).to eq([1, ["workers count"]])
      generated("workers 4 if ENV['MANY']\n", "config/puma.rb", "sometimes")
      text = File.read(File.join(@dir, "files/puma.rb/sometimes-generated/config/fastrack.rb"))
      expect(text.scan(/^ *(?:max_)?workers\b.*/)).to eq(['workers ENV.fetch("WEB_CONCURRENCY", 1)', "workers 4 if ENV['MANY']"])
    end

    it "is served with what the Procfile says" do
      command = File.read(path("Procfile"))[/web: (.*)/, 1]
      server = serve("sh", "-c", "exec #{command}", env: { "PORT" => "0", "RAILS_ENV" => "production", "WEB_CONCURRENCY" => "2", "PIDFILE" => "tmp/pids/web.pid" })
      expect([up(server), server.log.lines.first]).to eq([200, "loading from config_file:config/fastrack.rb\n"])
      expect(server.log).to include("Fastrack is ready Workers:2")
      expect(File.read(path("tmp/pids/web.pid")).to_i).to eq(server.master)
    end

    it "is served by bin/dev, for the developer alone" do
      server = serve("bin/dev", "-p", "0")
      expect([up(server), server.log]).to match([200, %r{^\* Listening on http://(?:localhost|127\.0\.0\.1):\d+$}])
    end

    {
      "Procfile" => [["web: bundle exec puma -C config/puma.rb\nworker: bin/jobs\n",
                      "# before fastrack:install: web: bundle exec puma -C config/puma.rb\nweb: bundle exec fastrack -e ${RAILS_ENV:-${RACK_ENV:-production}}\nworker: bin/jobs\n"],
                     ["worker: bin/jobs\n", "worker: bin/jobs\nweb: bundle exec fastrack -e ${RAILS_ENV:-${RACK_ENV:-production}}\n"]],
      "Procfile.dev" => [["web: env RUBY_DEBUG_OPEN=true bin/rails server\ncss: bin/rails tailwindcss:watch\n",
                          "web: env RUBY_DEBUG_OPEN=true bin/rails server -u fastrack\ncss: bin/rails tailwindcss:watch\n"],
                         ["web: bin/rails s -p 3000\n", "web: bin/rails s -u fastrack -p 3000\n"]],
      "Dockerfile" => [["EXPOSE 80\nCMD [\"./bin/thrust\", \"./bin/rails\", \"server\"]\n",
                        "EXPOSE 80\n# before fastrack:install: CMD [\"./bin/thrust\", \"./bin/rails\", \"server\"]\n" \
                        "ENV RACKUP_HANDLER=\"fastrack\" RACK_HANDLER=\"fastrack\" PORT=\"80\"\nCMD [\"./bin/rails\", \"server\"]\n"],
                       ["CMD [\"./bin/rails\", \"server\", \"-b\", \"0.0.0.0\"]\n",
                        "ENV RACKUP_HANDLER=\"fastrack\" RACK_HANDLER=\"fastrack\"\nCMD [\"./bin/rails\", \"server\", \"-b\", \"0.0.0.0\"]\n"],
                       ["CMD [\"bundle\", \"exec\", \"fastrack\"]\n", "CMD [\"bundle\", \"exec\", \"fastrack\"]\n"]],
      "bin/dev" => [["#!/usr/bin/env ruby\nexec \"./bin/rails\", \"server\", *ARGV\n",
                     "#!/usr/bin/env ruby\nexec \"./bin/rails\", \"server\", \"-u\", \"fastrack\", *ARGV\n"]]
    }.each do |name, texts|
      it "changes the line that is there in #{name}, once, and back" do
        found = texts.map.with_index { |(before, _), number| generated(before, name, "app#{number}") }
        expect(found).to eq(texts.map { |before, after| [after, { name => before }] })
      end
    end

    it "has the proxy take the place of a Thruster in Rails' Dockerfile, and names its options otherwise" do
      { "[\"./bin/thrust\", \"./bin/rails\", \"server\"]" => "", "[\"./bin/rails\", \"server\"]" => "# " }.each_with_index do |(command, mark), number|
        generated("CMD #{command}\n", "Dockerfile", "proxy#{number}")
        text = File.read(File.join(@dir, "files/Dockerfile/proxy#{number}-generated/config/fastrack.rb"))
        expect(text).to match(/^#{mark}public_files "public" if environment == "production"\n#{mark}cache_control "\/assets\/\*", /)
      end
    end

    it "is undone by bin/rails destroy fastrack:install" do
      run("bin/rails", "destroy", "fastrack:install")
      expect(files(@app).reject { |name, _| name.match?(%r{\A(?:tmp|log|storage)/}) }).to eq(@before)
    end
  end
end
