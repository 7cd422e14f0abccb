# frozen_string_literal: true

require_relative "spec_helper"
require_relative "../lib/fastrack/config_file"
require "fileutils"

# What docs/deploy.md says, done as it is written there, in another folder than /srv/app.
RSpec.describe "Deploys" do
  text = File.read(File.join(Server::ROOT, "docs/deploy.md"), encoding: "UTF-8")
  section = text[/^## Capistrano.*?(?=^## )/m]

  around do |example|
    Dir.mktmpdir("fastrack-deploy") do |dir|
      @dir = File.realpath(dir)
      example.run
    end
  end

  # The documentation's words for this folder and this machine.
  def here(words)
    words.gsub("/srv/app", @dir).gsub("bundle exec fastrack", "#{RbConfig.ruby} -w #{Server::COMMAND}")
  end

  def release(version, config)
    folder = "#{@dir}/releases/#{version}"
    FileUtils.mkdir_p("#{folder}/config")
    File.write("#{folder}/config.ru", "run ->(_env) { [200, {}, ['#{version} ' + Process.ppid.to_s]] }")
    File.write("#{folder}/config/fastrack.rb", config)
    # In one step, as Capistrano does it.
    File.symlink("releases/#{version}", "#{@dir}/next")
    File.rename("#{@dir}/next", "#{@dir}/current")
  end

  def ask
    UNIXSocket.open("#{@dir}/shared/tmp/app.sock") do |socket|
      socket.write("GET / HTTP/1.0\r\n\r\n")
      response = HttpResponse.parse(socket.read)
      raise "status #{response.status}" unless response.status == 200

      response.body.split
    end
  end

  it "C1 behind a link: USR2 brings the release that the link leads to by then, and no request is lost" do
    config = here(section[/^```ruby\n(.*?)^```$/m, 1])
    %w[tmp log].each { |name| FileUtils.mkdir_p("#{@dir}/shared/#{name}") }
    release("one", config)
    expect(system(Server::CLEAN_ENVIRONMENT, "sh", "-c", here(section[/`(cd [^`]+ -e production)`/m, 1].tr("\n", " ")))).to be(true)
    version, master = ask
    expect(version).to eq("one")

    release("two", config)
    # The log is stdout, too.
    log = "#{@dir}/shared/log/app.log"
    eventually { File.read(log).include?("is ready") }
    expect(system("sh", "-c", here(section[/^    (kill -USR2 .*)$/, 1]))).to be(true)
    answers = []
    eventually(20) { (answers << ask).last.first == "two" && ProcessTable.entry(master.to_i).nil? }
    expect(answers.map(&:first).uniq - %w[one two]).to eq([])
    fresh = File.read("#{@dir}/shared/tmp/app.pid").to_i
    expect(ask).to eq(["two", fresh.to_s])
  ensure
    ended = fresh || master.to_i
    Process.kill(:TERM, ended) if ended.positive?
    eventually { ProcessTable.entry(ended).nil? }
  end

  it "C2 examples/unicorn.rb is read as a unicorn.rb" do
    found = Fastrack::ConfigFile.load(File.join(Server::ROOT, "examples/unicorn.rb"))
    expect(found).to include(MaxWorkers: 4, RequestTimeout: 30, Pid: "#{Server::ROOT}/tmp/app.pid", WorkingDirectory: Server::ROOT)
    expect(found[:Listen].map(&:to_s)).to eq(["#{Server::ROOT}/tmp/app.sock", "127.0.0.1:8080"])
  end
end
