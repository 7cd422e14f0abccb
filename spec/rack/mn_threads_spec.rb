# frozen_string_literal: true

# With RUBY_MN_THREADS=1 (Ruby 3.3) a Ruby thread goes on in another native thread after it has waited.
MN_THREADS_MISSING = ("no M:N threads in Ruby #{RUBY_VERSION}" if Gem::Version.new(RUBY_VERSION) < Gem::Version.new("3.3"))

RSpec.describe "M:N threads with MaxThreads", skip: MN_THREADS_MISSING do
  app = <<~'RUBY'
    natives = Hash.new { |hash, thread| hash[thread] = [] }
    run(lambda do |env|
      File.write("in.#{env["QUERY_STRING"]}", "")
      sleep 0.002 until Dir.glob("in.*").size >= 3
      total = 0
      while (piece = env["rack.input"].read(1000))
        total += piece.bytesize
        natives[Thread.current] |= [Thread.current.native_thread_id]
        sleep 0.001
      end
      [200, {}, [[total, natives.values.map(&:size).max].join(" ")]]
    end)
  RUBY

  it "C5 a body is read in its request's Ruby thread, whichever native threads that has, beside others, and the worker ends in good order" do
    serve(app, options: { "MaxThreads" => 3, "StreamBody" => true }, env: { "RUBY_MN_THREADS" => "1" })
    heads = Array.new(3) { |nr| message("POST /?#{nr} HTTP/1.1", "Host: a", "Content-Length: 100000", "Connection: close") }
    peers = heads.map { |head| HttpPeer.new(server).tap { |peer| peer.write(head) } }
    # In parts, so that the threads wait for their clients again and again.
    20.times do
      peers.each { |peer| peer.write("x" * 5000) }
      sleep 0.01
    end
    bodies = peers.map { |peer| HttpResponse.parse(peer.read_to_end).body.split.map(&:to_i) }
    expect(bodies.map(&:first)).to all(eq(100_000))
    # Else this would show nothing.
    expect(bodies.map(&:last).max).to be > 1
    expect(server.stop).to be_success
    expect(server.log).not_to match(/IOError|\[BUG\]/)
  end
end
