# frozen_string_literal: true

# How long requests wait, as the app learns it.
RSpec.describe "the queue time", once: "measured without Ruby" do
  # Answers with the queue time. `/slow` takes until there is a file `go`.
  let(:ru) { Rackups::GATE.sub("[Process.pid.to_s]", '[env["fastrack.queue_time"].then { |time| "#{time.class} #{time}" }]') }

  # How long a request has to wait for another one, in seconds.
  let(:held) { 0.1 }

  def queue_time(server, fields = {}) = server.get("/", fields).body[/\AFloat (.*)\z/, 1].to_f
  def micros = Process.clock_gettime(Process::CLOCK_REALTIME, :microsecond)

  it "is a Float in each env, and that since X-Request-Start or X-Queue-Start where a router says so" do
    server = Server.start(ru: ru, options: { MaxWorkers: 1 })
    waits = -> { be_between(0, GcMode.patient(5)) }
    expect(queue_time(server)).to waits.call
    [{ "X-Request-Start" => "t=#{(micros - 2_000_000) / 1e6}" }, { "X-Request-Start" => ((micros / 1000) - 2000).to_s },
     { "X-Queue-Start" => (micros - 2_000_000).to_s }].each do |field|
      expect(queue_time(server, field)).to be_between(2, GcMode.patient(20)), field.inspect
    end
    [{ "X-Request-Start" => "t=#{(micros / 1_000_000) + 3600}" }, { "X-Request-Start" => "soon" }, { "X-Queue-Start" => "12" }].each do |field|
      expect(queue_time(server, field)).to waits.call, field.inspect
    end
  end

  # The kernel's tick, by which the server tells the time, is 1 to 10 ms long.
  { "new" => nil, "kept" => "GET / HTTP/1.1\r\nHost: h\r\n\r\n" }.each do |kind, first|
    it "is the time that a #{kind} connection has waited for another request" do
      server = Server.start(ru: ru, options: { MaxWorkers: 1 })
      # A new connection waits from the moment it is made.
      sent = micros
      HttpPeer.open(server) do |peer|
        peer.write(first).read_until(/Float \S/) if first
        holding = SlowRequest.new(server)
        sent = micros if first
        peer.write("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        # A busy worker looks sooner or later.
        Eventually.eventually { peer.taken? } if first
        # What the request waits is what is told.
        sleep held
        holding.finish
        peer.read_to_end
        waited = (micros - sent) / 1e6
        expect(peer.received[/Float (\S+)\z/, 1].to_f).to be_between(held - 0.03, waited + 0.03)
      end
    end
  end
end
