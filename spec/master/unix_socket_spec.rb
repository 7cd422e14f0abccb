# frozen_string_literal: true

# The file of a unix socket when the server that listens there ends.
RSpec.describe "A unix socket", once: "files" do
  include ReexecHelpers

  %i[TERM QUIT INT].each do |signal|
    it "D2 is removed at the server's end by #{signal}, wherever the server is by then" do
      server = start(unix: true, options: { Path: "server.sock" }, config: "after_worker_ready { Dir.chdir('/') }\nbefore_fork { Dir.chdir('/') }")
      expect(File).to be_socket(server.file("server.sock"))
      expect([server.stop(signal).exitstatus, server.file?("server.sock")]).to eq([0, false])
    end
  end

  it "D2 is left to the new master at USR2, and removed by that" do
    server = start(unix: true)
    usr2(server)
    master = taken_over(server)
    expect(server.get.body).to eq("v1 #{master}")
    server.signal(:TERM, to: master)
    await_processes(server, 0)
    expect(server.file?("server.sock")).to be(false)
  end

  it "D2 is left to a server that has taken its place" do
    server = start(unix: true)
    File.unlink(server.file("server.sock"))
    other = UNIXServer.new(server.file("server.sock"))
    server.stop
    expect(File).to be_socket(server.file("server.sock"))
    other.close
  end

  it "D2 is removed if HUP has it listened on no more" do
    server = start(fastrack: true, options: { Host: nil, Port: nil }, config: "listen './one.sock'\nlisten './two.sock'")
    server.reload("listen './two.sock'")
    server.await_ready(2)
    server.stop
    expect(Dir.children(server.dir).grep(/sock/)).to be_empty
  end

  { "does not load" => ["raise 'no database'", ""], "finds another port taken" => [Rackups::PID, "listen '127.0.0.1:PORT', tries: 1"] }
    .each do |what, (ru, line)|
      it "D2 is removed by a server that #{what}" do
        taken = TCPServer.new("127.0.0.1", 0)
        server = Server.fail_to_start(ru: ru, fastrack: true, options: { Host: nil, Port: nil },
                                      config: "listen './one.sock'\n#{line.sub("PORT", taken.addr[1].to_s)}")
        expect([server.status.exitstatus, Dir.children(server.dir).grep(/sock/)]).to eq([1, []])
        taken.close
      end
    end
end
