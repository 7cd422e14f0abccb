# frozen_string_literal: true

require "support/http_peer"

# How long requests wait, as the app learns it.
RSpec.describe "the queue time" do
  # Answers with the queue time. `/hold` takes until there is a file of that name.
  let(:ru) do
    <<~'RUBY'
      here = File.dirname(File.expand_path(__FILE__))
      run lambda { |env|
        if env["PATH_INFO"] == "/hold"
          File.write(File.join(here, "held"), "")
          sleep 0.01 until File.exist?(File.join(here, "release"))
        end
        time = env["fastrack.queue_time"]
        [200, { "content-type" => "text/plain" }, ["#{time.class} #{time}"]]
      }
    RUBY
  end

  # How long a request has to wait for another one, in seconds.
  let(:held) { 0.1 }

  def queue_time(server, *fields)
    text, = HttpPeer.exchange(server, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n#{fields.map { |field| "#{field}\r\n" }.join}\r\n")
    text[/Float (.*)\z/, 1].to_f
  end

  def micros
    Process.clock_gettime(Process::CLOCK_REALTIME, :microsecond)
  end

  it "is a Float in each env, and that since X-Request-Start or X-Queue-Start where a router says so" do
    server = Server.start(ru: ru, options: { MaxWorkers: 1 }).await_listening
    expect(queue_time(server)).to be_between(0, 5)
    ["X-Request-Start: t=#{(micros - 2_000_000) / 1e6}", "X-Request-Start: #{(micros / 1000) - 2000}",
     "X-Queue-Start: #{micros - 2_000_000}"].each do |field|
      expect(queue_time(server, field)).to be_between(2, 20), field
    end
    ["X-Request-Start: t=#{(micros / 1_000_000) + 3600}", "X-Request-Start: soon", "X-Queue-Start: 12"].each do |field|
      expect(queue_time(server, field)).to be_between(0, 5), field
    end
  end

  # The kernel's tick, by which the server tells the time, is 1 to 10 ms long.
  { "new" => nil, "kept" => "GET / HTTP/1.1\r\nHost: h\r\n\r\n" }.each do |kind, first|
    it "is the time that a #{kind} connection has waited for another request" do
      server = Server.start(ru: ru, options: { MaxWorkers: 1 }).await_listening
      HttpPeer.open(server) do |peer|
        peer.write(first).read_until(/Float \S/) if first
        holding = Thread.new { HttpPeer.exchange(server, "GET /hold HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n") }
        Eventually.eventually { File.exist?(File.join(server.dir, "held")) }
        peer.write("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        sent = micros
        # A busy worker looks sooner or later.
        Eventually.eventually { peer.taken? } if first
        # What the request waits is what is told.
        sleep held
        server.write("release", "")
        peer.read_to_end
        waited = (micros - sent) / 1e6
        expect(peer.received[/Float (\S+)\z/, 1].to_f).to be_between(held - 0.03, waited + 0.03)
        holding.value
      end
    end
  end
end
