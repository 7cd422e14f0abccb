# frozen_string_literal: true

require "support/http_helpers"

RSpec.describe "the memory of a huge response", once: "malloc of the engine" do
  size = 64 * 1024 * 1024

  # In MiB: what this process alone has, and has written to (proc(5), smaps_rollup).
  def private_dirty(pid)
    File.read("/proc/#{pid}/smaps_rollup")[/^Private_Dirty:\s+(\d+) kB/, 1].to_i / 1024
  end

  # The app's own copy was made before the fork: the worker shares it.
  it "B-memory is given back when it has left" do
    serve(<<~RUBY)
      huge = ["x" * #{size}].freeze
      run ->(env) { [200, {}, env["PATH_INFO"] == "/huge" ? huge : ["small"]] }
    RUBY
    server.get("/small")
    before = private_dirty(@worker)
    expect(server.get("/huge").body.bytesize).to eq(size)
    server.get("/small")
    expect(private_dirty(@worker) - before).to be < 16
  end

  it "B-memory is given back when many clients that did not read theirs have left" do
    serve(<<~RUBY)
      large = ["x" * 8_000_000].freeze
      run ->(env) { [200, {}, env["PATH_INFO"] == "/large" ? large : ["small"]] }
    RUBY
    server.get("/small")
    before = private_dirty(@worker)
    # The first large buffers are not of the heap. Small ones of others that stay lie between the next ones.
    stay = []
    2.times do
      peers = Array.new(20) do
        stay << HttpPeer.new(server).write("GET /small HTTP/1.1\r\nX: ")
        HttpPeer.new(server, receive_buffer: 4096).write("GET /large HTTP/1.0\r\n\r\n").tap { |peer| peer.anything_within?(20) }
      end
      peers.each(&:abort)
    end
    eventually { private_dirty(@worker) - before < 16 }
    stay.each(&:close)
  end
end
