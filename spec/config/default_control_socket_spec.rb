# frozen_string_literal: true

require_relative "../../lib/fastrack/configuration/control_endpoints"

RSpec.describe "The folder for monitors without a place of their own", linux: "it takes /proc", once: "files" do
  include Folder

  let(:folder) { File.join(@dir, "fastrack-#{Process.euid}") }

  before do
    stub_const("Fastrack::UserFolder::PARENT", @dir)
    stub_const("Fastrack::UserFolder::ROOTS", folder)
  end

  it "is made for the server's user alone, and has a name for each master" do
    expect([Fastrack::DefaultControlSocket.make, File.stat(folder).mode & 0o777]).to eq(["#{folder}/#{Process.pid}.control", 0o700])
    expect(Fastrack::DefaultControlSocket.make).to eq(Fastrack::DefaultControlSocket.path)
  end

  it "loses what servers have left that were killed, and nothing of others" do
    Fastrack::DefaultControlSocket.make
    dead = Process.wait(spawn("true"))
    names = ["#{dead}.control", "#{Process.ppid}.control", "#{dead}.txt"]
    names.each { |name| File.write(File.join(folder, name), "") }
    Fastrack::DefaultControlSocket.make
    expect(Dir.children(folder)).to match_array(names.drop(1))
  end

  it "is not used where somebody else may have made it: a link, a file, one that others can enter" do
    Dir.mkdir(elsewhere = File.join(@dir, "elsewhere"), 0o700)
    [-> { File.symlink(elsewhere, folder) }, -> { File.write(folder, "") }, -> { Dir.mkdir(folder) && File.chmod(0o711, folder) },
     *(-> { Dir.mkdir(folder, 0o700) && File.chown(65_534, nil, folder) } if Process.euid.zero?)].each do |made|
      made.call
      expect([Fastrack::DefaultControlSocket.make, Fastrack::DefaultControlSocket.path]).to eq([nil, nil])
      FileUtils.rm_rf(folder)
    end
  end
end
