# frozen_string_literal: true

%w[body headers].each do |kind|
  RSpec.describe "A15 the block that the server gives to each of the #{kind}" do
    before(:context) { serve(HttpApps.ru(:keeping)) }

    # The response whose each gave the block away is as any other.
    def expect_response(path)
      response = server.get(path)
      expect([response.status, response.headers["x-now"], response.body]).to eq([200, "yes", "now"])
      expect(response.headers).not_to be_key("x-late")
    end

    it "A15 may be kept, but gets a ThreadError when it is called in another request or thread" do
      expect_response("/#{kind}/keep")
      %w[call thread].each do |how|
        response = server.get("/#{kind}/#{how}")
        expect(response.body).to eq("ThreadError")
        expect(response.headers).not_to be_key("x-late")
      end
      expect_worker_alive
    end

    it "A15 gets a ThreadError in another thread while each runs, too, which is an app's exception like any other (500)" do
      expect_response("/#{kind}/meanwhile")
      expect(server.get("/#{kind}/seen").body).to eq("ThreadError")
      expect_response("/#{kind}/keep")
      expect(server.get("/#{kind}/let").status).to eq(500)
      eventually { server.log.include?("(ThreadError)") }
      expect_worker_alive
    end
  end
end

RSpec.describe "A15 the block that the server gives to each of the body, called in a Fiber" do
  it "A15 raises a ThreadError where a signal's handler leaves the Fiber, and it comes back in another request" do
    server = Server.start(ru: <<~'RUBY', options: { MaxWorkers: 1, ResponseBuffer: 0, MaxResponseSpool: 0 })
      leaving = Object.new
      def leaving.each(&block)
        trap("CONT") { File.write("left", "") && Fiber.yield if Fiber.current.equal?($fiber) }
        $fiber = Fiber.new { block.call("x" * 8_000_000) }
        $fiber.resume
      end
      run(lambda { |env|
        next [200, {}, leaving] if env["PATH_INFO"] == "/leave"

        said = begin
          $fiber.resume
          "nothing"
        rescue ThreadError => e
          e.class.name
        end
        [200, {}, [said]]
      })
    RUBY
    worker = server.await_workers(1).first
    server.connect do |client|
      client.write("GET /leave HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
      # It takes no more than the head and what the sockets hold.
      client.wait_readable(10)
      eventually { server.signal(:CONT, to: worker) && File.exist?(File.join(server.dir, "left")) }
      client.read
    rescue Errno::ECONNRESET
      # The body was cut off.
    end
    expect([server.get("/back").body, server.workers]).to eq(["ThreadError", [worker]])
  end
end
