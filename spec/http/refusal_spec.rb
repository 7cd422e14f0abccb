# frozen_string_literal: true

RSpec.describe "B-status a refused request", once: "bytes on the wire" do
  before(:context) { serve(HttpApps.ru(:echo)) }

  # What comes back for bytes that must not reach the app. Which those are is in rules_spec.rb.
  def refused(bytes)
    before = journal.lines.size
    wire, ending = HttpPeer.exchange(server, bytes)
    response = HttpResponse.all(wire).last
    expect([ending, response.headers["Connection"], journal.lines.size]).to eq([:closed, "close", before])
    response
  end

  it "B-status-400 says in a line what was wrong" do
    response = refused("nonsense\r\n\r\n")
    expect(response.headers["Content-Type"]).to start_with("text/plain")
    expect([response.body, response.headers["Date"]]).to match([/\A400 Bad Request: .+\n\z/, /GMT/])
  end

  it "B-status waits for 5 s at most for more of a client that was refused" do
    sockets = -> { ProcessTable.descriptors(@worker).values.count { |target| target&.start_with?("socket:") } }
    before = sockets.call
    HttpPeer.open(server) do |peer|
      peer.write("nonsense\r\n\r\n").read_to_end
      eventually { sockets.call <= before }
    end
  end

  it "B-status a client that connects and leaves without a word is no request, and no error" do
    before = journal.lines.size
    server.connect(&:close_write)
    5.times { server.connect { |socket| socket.write("GE") } }
    expect_worker_alive
    expect(journal.lines.size).to eq(before + 1)
  end
end
