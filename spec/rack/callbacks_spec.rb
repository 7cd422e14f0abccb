# frozen_string_literal: true

RSpec.describe "C5 what an app leaves to be called after its response" do
  before(:context) { serve(HttpApps.ru(:calling_back)) }

  def noted(path) = journal.lines.select { |line| line.start_with?("#{path} ") }.map { |line| line.delete_prefix("#{path} ") }

  # What was called for a request, once that is all of it.
  def called_for(path)
    HttpPeer.exchange(server, message("GET #{path} HTTP/1.1", "Host: a", "Connection: close"))
    server.get("/none")
    noted(path)
  end

  { "all of it, in order" => ["/fine", ["reply 1", "reply 2"]],
    "the app's own list in its place" => ["/own", ["reply"]],
    "the app's own where it has deleted the server's" => ["/anew", %w[rack.after_reply]],
    "it after an exception" => ["/raises", ["reply 1", "reply 2"]],
    "it after half a response" => ["/half", ["reply 1", "reply 2"]] }.each do |what, (path, called)|
    it "C5 rack.after_reply calls #{what}" do
      expect(called_for(path).grep(/reply/)).to eq(called)
      expect(noted(path)).to include("rack.response_finished") if path == "/anew" && HttpApps.rack3?
    end
  end

  it "C5 rack.after_reply: the client has its response before" do
    HttpPeer.open(server) do |peer|
      peer.write(message("GET /slow HTTP/1.1", "Host: a"))
      peer.read_until(/done\z/)
      server.write("go", "")
    end
    expect_worker_alive
  end

  it "C5 rack.after_reply: what raises there keeps nobody else from its turn, and is reported" do
    expect(called_for("/failing")).to eq(["reply"])
    eventually { server.log.include?("in a callable (RuntimeError)") && server.log.include?("NoMethodError") }
    expect_worker_alive
  end

  it "C5 a list is seen by no other request than its own: used, added to by a thread later, or frozen" do
    3.times { server.get("/late") }
    2.times { %w[/keeps /pushes].each { |path| server.get(path) } }
    server.get("/freezes")
    expect(server.get("/sees").body).to eq(HttpApps.rack3? ? "[] []" : "[] nothing")
    expect(journal.lines).not_to include("too late")
    expect([journal.count("/late reply"), called_for("/fine").grep(/reply/).last(2)]).to eq([3, ["reply 1", "reply 2"]])
  end

  it "C5 rack.response_finished: one that the app has put there itself is called on Rack 3, and is nothing to us on Rack 2" do
    expect(called_for("/unasked")).to eq(HttpApps.rack3? ? ["finished"] : [])
  end

  if HttpApps.rack3?
    it "C5 rack.response_finished: is called with env, status and headers, the last one first (Rack 3)" do
      outcome = '/fine 201 ["x-path"] none'
      expect(called_for("/fine").last(2)).to eq(["finished 2: #{outcome}", "finished 1: #{outcome}"])
    end

    it "C5 rack.response_finished: gets the exception of an app that has raised (Rack 3)" do
      expect(called_for("/raises").last).to eq("finished 1: /raises nil nil ArgumentError in the app")
      expect(called_for("/half").last).to eq('finished 1: /half 200 ["x-half"] RuntimeError in each')
      expect(called_for("/close").last).to eq("finished 1: /close 200 [] RuntimeError in close")
    end

    it "C5 rack.response_finished: gets an exception when the client has left before the end (Rack 3)" do
      abandon("/endless", /eeee/)
      eventually { noted("/endless").last == "finished 1: /endless 200 [] IOError the response was not sent whole" }
    end
  end
end

# With one thread alone as well, where no other thread could add to a list of a request that is over.
RSpec.describe "D12 a callback list that the app has kept" do
  { "env" => "env", "its lists" => "LISTS.call(env)" }.each do |what, kept|
    it "D12 is its own request's: #{what} kept, and added to in the next request" do
      serve(<<~RUBY)
        LISTS = ->(env) { env.slice("rack.after_reply", "rack.response_finished") }
        kept = nil
        run(lambda do |env|
          LISTS.call(kept).each_value { |list| list << ->(*) { File.write("late", "called") } } if env["PATH_INFO"] == "/add"
          kept = #{kept}
          seen = LISTS.call(env).values.map(&:size).inspect
          [200, {}, [seen]]
        end)
      RUBY
      bodies = %w[/ /add / /add /].map { |path| server.get(path).body }
      expect(bodies).to all(match(/\A\[0(, 0)?\]\z/))
      expect(server).not_to be_file("late")
    end
  end
end
