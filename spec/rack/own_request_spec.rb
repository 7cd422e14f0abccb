# frozen_string_literal: true

# D12: what env offers acts on its own request only, whenever it is called, and in whatever thread.
RSpec.describe "D12 what env offers" do
  # Paths: /keep/KEY keeps what env has under that key, /leave/KEY/NAME leaves a thread that calls it when the file NAME is
  # there; /call calls what was kept, in its own request's thread. /hold/NAME holds a request until the file NAME is there.
  app = <<~'RUBY'
    KEYS = { "hijack" => "rack.hijack", "hints" => "rack.early_hints", "gone" => "fastrack.client_gone", "timeout" => "fastrack.timeout" }.freeze
    CALLS = {
      "hijack" => ->(one) { one.call.class.name }, "hints" => ->(one) { one.call("link" => "</left>").inspect },
      "gone" => ->(one) { one.call.inspect }, "timeout" => ->(one) { one.call(0.001).inspect }
    }.freeze
    kept = {}
    attempt = lambda do |key, one|
      CALLS.fetch(key).call(one)
    rescue StandardError => e
      e.class.name
    end
    run(lambda do |env|
      _, what, key, name = env["PATH_INFO"].split("/")
      text = case what
             when "keep" then (kept[key] = env.fetch(KEYS.fetch(key))) && "kept"
             when "call" then attempt.call(key, kept.fetch(key))
             when "own" then attempt.call(key, env.fetch(KEYS.fetch(key)))
             when "leave"
               one = env.fetch(KEYS.fetch(key))
               Thread.new do
                 sleep 0.002 until File.exist?(name)
                 File.write("#{name}.said", attempt.call(key, one))
               end
               "left"
             when "hold"
               File.write("#{key}.held", "")
               sleep 0.002 until File.exist?(key)
               env["fastrack.client_gone"].call.inspect
             when "watch"
               File.write("#{key}.held", "")
               Thread.new { sleep 0.002 until env["fastrack.client_gone"].call }.join
               File.write("#{key}.said", "gone")
             when "after"
               (env["rack.after_reply"] ||= []) << -> { File.write("after.said", attempt.call("gone", env["fastrack.client_gone"])) }
             when "block" then ["</a>", "</b>"].map { |link| { "link" => link } }.each(&env["rack.early_hints"]).size
             end
      # For what has been given a limit of a millisecond to be ended by it.
      sleep 0.2 if what == "call" && key == "timeout"
      [200, { "content-type" => "text/plain" }, [text.to_s]]
    end)
  RUBY

  def said(name)
    path = File.join(server.dir, "#{name}.said")
    eventually { File.exist?(path) && !File.empty?(path) && File.read(path) }
  end

  over = { "hijack" => "IOError", "hints" => "nil", "gone" => "true", "timeout" => "nil" }

  [1, 3].each do |threads|
    context "with MaxThreads #{threads}" do
      before(:context) { serve(app, options: { "MaxThreads" => threads, "EarlyHints" => true }) }

      over.each do |key, answer|
        # A sleep of the app's long enough for the watchdog is in /hold: until the thread has called.
        it "#{key}: a thread that a request has left acts on no other request" do
          name = "#{key}#{threads}"
          expect(server.get("/leave/#{key}/#{name}").body).to eq("left")
          HttpPeer.open(server) do |peer|
            peer.write(message("GET /hold/#{name}.go HTTP/1.1", "Host: a", "Connection: close"))
            eventually { File.exist?(File.join(server.dir, "#{name}.go.held")) }
            server.write(name, "")
            expect(said(name)).to eq(answer)
            expect(peer).not_to be_anything_within(0.3)
            server.write("#{name}.go", "")
            response = HttpResponse.parse(peer.read_to_end)
            expect([response.status, response.body]).to eq([200, "false"])
          end
          expect_worker_alive
        end

        it "#{key}: kept, and called in a later request, acts on no other request, however many come in between" do
          expect(server.get("/keep/#{key}").body).to eq("kept")
          [0, 1, 2, 3, 6].each do |others|
            others.times { server.get("/") }
            expect(server.get("/call/#{key}")).to have_attributes(status: 200, body: answer)
          end
          expect_worker_alive
        end
      end

      { "hints" => ["nil", 1], "gone" => ["false", 0] }.each do |key, (answer, hints)|
        it "#{key}: acts on its own request, one after the other" do
          answers = Array.new(20) { HttpPeer.exchange(server, message("GET /own/#{key} HTTP/1.1", "Host: a", "Connection: close")).first }
          expect(answers.map { |bytes| [bytes.scan("103 Early Hints").size, bytes.split("\r\n\r\n").last] }.uniq).to eq([[hints, answer]])
        end
      end

      it "gone: a thread may ask for its own request, too, and is told when the client has left" do
        peer = HttpPeer.new(server)
        peer.write(message("GET /watch/own#{threads} HTTP/1.1", "Host: a"))
        eventually { File.exist?(File.join(server.dir, "own#{threads}.held")) }
        peer.close
        expect(said("own#{threads}")).to eq("gone")
        expect_worker_alive
      end

      it "gone: is false in the callbacks of its request, which is not over yet" do
        expect([server.get("/after").status, said("after")]).to eq([200, "false"])
      end

      it "hints: can be passed as a block" do
        bytes, = HttpPeer.exchange(server, message("GET /block HTTP/1.1", "Host: a", "Connection: close"))
        expect([bytes.scan("103 Early Hints").size, bytes[/\d\z/]]).to eq([2, "2"])
      end

      it "timeout: a thread sets the limit of its own request" do
        ru = <<~'RUBY'
          run(lambda { |env|
            Thread.new { env["fastrack.timeout"].call(0.2) }.join
            sleep 60
          })
        RUBY
        own = Server.start(ru: ru, options: { "MaxWorkers" => 1, "MaxThreads" => threads })
        expect(own.get("/").status).to eq(504)
      end
    end
  end
end
