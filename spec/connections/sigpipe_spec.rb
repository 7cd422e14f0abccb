# frozen_string_literal: true

# An app may have SIGPIPE end its process, as a shell's programs do: what the server sends raises none.
RSpec.describe "a client that leaves an app which dies of SIGPIPE", once: "flags of system calls" do
  app = <<~'RUBY'
    trap("PIPE", "SYSTEM_DEFAULT")
    file = Class.new { def each; end; def to_path = "file" }
    run lambda { |env|
      case env["PATH_INFO"]
      when "/file" then next [200, { "content-length" => "10000000" }, file.new]
      when "/array" then sleep 0.005 until env["fastrack.client_gone"].call
      end
      [200, { "content-type" => "text/plain" }, ["x" * 1000] * 100]
    }
  RUBY

  # A unix socket's client that is gone is a broken pipe at once.
  before(:context) do
    serve(app, unix: true)
    File.open(File.join(server.dir, "file"), "w") { |file| file.truncate(10_000_000) }
  end

  { "/array" => nil, "/file" => 1000 }.each do |path, read|
    it "C4 costs no worker at #{path}" do
      HttpPeer.open(server) do |peer|
        peer.write(message("GET #{path} HTTP/1.1", "Host: a"))
        peer.read_until_size(read) if read
      end
      expect(server.get("/").body.bytesize).to eq(100_000)
      expect_worker_alive
    end
  end
end
