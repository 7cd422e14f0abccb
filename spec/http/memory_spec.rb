# frozen_string_literal: true

RSpec.describe "the memory of large responses", once: "malloc of the engine" do
  # In MiB: what this process alone has, and has written to (proc(5), smaps_rollup).
  def private_dirty(pid) = File.read("/proc/#{pid}/smaps_rollup")[/^Private_Dirty:\s+(\d+) kB/, 1].to_i / 1024

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
