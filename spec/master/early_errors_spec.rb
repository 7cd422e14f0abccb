# frozen_string_literal: true

# What a program says that a master has started, and that ends before Fastrack runs in it.
RSpec.describe "The reason of Bundler's", linux: "O_TMPFILE", exec: "generation 0 is a program of its own", once: "processes" do
  include Folder

  attr_reader :dir

  gemfile = "gem 'rhebok-rs', path: #{Server::ROOT.inspect}\n"

  def serve(gemfile)
    Folder.write(dir, "Gemfile", gemfile)
    system(Server::CLEAN_ENVIRONMENT, "bundle", "lock", "--local", chdir: dir, %i[out err] => File::NULL) or skip "Bundler does not find the gems"
    Folder.write(dir, "config.ru", "warn 'the app loads'\nrun ->(_env) { [200, {}, ['ok']] }")
    command = ["bundle", "exec", Server::COMMAND, "-p", "0", "-o", "127.0.0.1", "-e", "production", "-P", "#{dir}/app.pid"]
    Server.ready(ru: "", command: ["sh", "-c", 'cd "$0" && exec "$@"', dir, *command])
  end

  def order(name) = Open3.capture2e(RbConfig.ruby, Server::COMMAND, name, "-P", "#{dir}/app.pid")

  { "reload" => "HUP: the new code is given up: generation 0", "restart" => "the new master" }.each do |name, beginning|
    it "is in the line of `fastrack #{name}`, and with all of Bundler's lines in the log" do
      server = serve(gemfile)
      Folder.write(dir, "Gemfile", "#{gemfile}gem 'gone-for-good', '1.2.3'\n")
      said, status = order(name)
      expect([said, status.exitstatus]).to match([/exited with status \d+.*: .*gone-for-good.*\n\z/, 1])
      expect(server.log).to match(/^.*gone-for-good/).and include("fastrack: #{beginning}")
      expect(server.log.lines.grep(/\e/)).to eq([])
      expect(server.get.body).to eq("ok")
    end

    it "leaves stderr to the log where `fastrack #{name}` goes well" do
      server = serve(gemfile)
      said, status = order(name)
      expect([said, status.exitstatus]).to match([/ready/, 0])
      server.await_log(/^the app loads$/, 2)
      files = [server.master, *server.molds].flat_map { |pid| ProcessTable.descriptors(pid).values }
      expect(files.grep(%r{/#\d+ \(deleted\)})).to eq([])
    end
  end
end
