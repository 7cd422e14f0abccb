# frozen_string_literal: true

# Deploy tools remove old releases, in one of which a server may have been started.
RSpec.describe "A server whose directory has been removed", once: "system calls of the master" do
  include ReexecHelpers

  let(:top) { File.realpath(Dir.mktmpdir("fastrack-lost")) }

  after { FileUtils.remove_entry(top) }

  def release(name)
    Dir.mkdir("#{top}/#{name}")
    File.write("#{top}/#{name}/config.ru", "run ->(_env) { [200, {}, ['#{name} in ' + (Dir.pwd rescue 'none')]] }")
    return if name == "start"

    File.symlink(name, "#{top}/next")
    File.rename("#{top}/next", "#{top}/current")
  end

  # @param place [String] where it is started
  # @param shell [Boolean] whether a shell has said by which name (PWD)
  def serve(place, config, shell:)
    entered = shell ? 'cd "$0" && exec "$@"' : 'cd "$0" && exec env -u PWD "$@"'
    start(wrapper: ["sh", "-c", entered, "#{top}/#{place}"], config: config, options: { Pid: "#{top}/app.pid" })
  end

  def expect_new_workers(server, signal, text)
    before = server.await_workers(2)
    server.signal(signal)
    if signal == :USR2
      taken_over(server)
    else
      server.await_workers(2) { |found| (found & before).empty? }
    end
    expect(server.get.body).to end_with(text)
  end

  %i[HUP USR2].each do |signal|
    it "C2 goes where it was started, by name, at #{signal}" do
      release("one")
      server = serve("current", "preload_app true", shell: true)
      expect(server.get.body).to eq("one in #{top}/one")
      release("two")
      FileUtils.remove_entry("#{top}/one")
      expect_new_workers(server, signal, " in #{top}/two")
    end

    it "C2 goes where working_directory says at #{signal}, though it knows no name of where it was started" do
      release("start")
      release("one")
      server = serve("start", "working_directory '#{top}/current'", shell: false)
      expect(server.get.body).to end_with(" in #{top}/one")
      release("two")
      %w[one start].each { |name| FileUtils.remove_entry("#{top}/#{name}") }
      expect_new_workers(server, signal, " in #{top}/two")
    end
  end

  it "C2 says what is missing, and serves on, where there is nowhere to go" do
    release("one")
    server = serve("one", "working_directory '#{top}/one'", shell: false)
    FileUtils.remove_entry("#{top}/one")
    server.signal(:HUP)
    server.await_log("HUP changes nothing: the directory #{top}/current of the server's start is gone (so is #{top}/one)")
    server.signal(:USR2)
    server.await_log("this one carries on")
    expect(server.log).to include("the directory #{top}/current of the server's start is gone")
    expect(server.get.status).to eq(200)
  end
end
