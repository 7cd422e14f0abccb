# frozen_string_literal: true

RSpec.describe "C4 Small parts of responses", once: "what the kernel holds back", if: Socket.const_defined?(:TCP_CORK) do
  # The kernel lets them go by itself after so many seconds.
  let(:kernels) { 0.2 }
  # Another process may have the processor at the wrong moment: one good try of so many will do.
  let(:tries) { 50 }

  # How many packets come while a client asks and gets its answers.
  def packets_for(one)
    before = one.packets
    yield
    one.packets - before
  end

  # Whether a client gets what it waits for before the kernel lets it go; each try has a gate of its own.
  gates = (1..).each
  define_method(:at_once?) do |&wait|
    (1..tries).any? do
      one = peer
      one.get("/")
      seconds { wait.call(one, gates.next) } < kernels / 2
    end
  end

  # /parts/N: so many at once; /length/N the same with a length; /raise: two, and then an error; /fork: two, a child that ends, and two; /gate/NAME: two, and the rest when the file NAME is there;
  # /wait/NAME: all of it then; /callback/NAME: computes after the response; /hijack/NAME: takes the connection, and writes to it then.
  def serve_parts(**options)
    serve(<<~'RUBY', options: { "MaxWorkers" => 1 }.merge(options))
      gate = ->(name) { sleep 0.002 until File.exist?(name) }
      parts = ->(count, &rest) { Class.new { define_method(:each) { |&block| count.times { block.call("part.") }; rest&.call(block) } }.new }
      run lambda { |env|
        _, what, name = env["PATH_INFO"].split("/")
        headers = { "content-type" => "text/plain" }
        body = case what
               when "parts" then parts.call(Integer(name))
               when "length" then headers["content-length"] = (5 * Integer(name)).to_s and parts.call(Integer(name))
               when "raise" then parts.call(2) { raise "no more parts" }
               when "fork" then parts.call(2) { |block| (child = fork) ? Process.wait(child) : exit; 2.times { block.call("part.") } }
               when "gate" then parts.call(2) { |block| gate.call(name); block.call("end.") }
               when "wait" then gate.call(name) || ["waited"]
               when "hijack" then env["rack.hijack"].call.then { |io| Thread.new { gate.call(name) || io.write("late") && io.close } } && []
               when "callback" then env["rack.after_reply"] << -> { Integer.sqrt(9) until File.exist?(name) } and ["called"]
               else ["hello"]
               end
        [200, headers, body]
      }
    RUBY
    server.await_workers(1)
  end

  # Whether the first of two pipelined requests is answered at once, though the other one's answer needs an open gate.
  def before_gate?(first, second, *bodies)
    at_once? do |one, number|
      one.write([first, second].map { |path| KeptPeer.request(path.sub("NAME", number.to_s)) }.join)
      expect(one.answer.body).to eq(bodies.first)
    ensure
      open_gate(number.to_s)
      expect(one.answer.body).to eq(bodies.last)
    end
  end

  [1, 4].each do |threads|
    context "with #{threads} threads" do
      before(:context) { serve_parts("MaxThreads" => threads) }

      it "leave in one packet where they follow each other at once" do
        one = peer
        one.get("/")
        expect((1..tries).any? { packets_for(one) { expect(one.get("/parts/20").body).to eq("part." * 20) } == 1 }).to be(true)
      end

      it "leave where the app waits with the next one" do
        quick = at_once? do |one, number|
          one.ask("/gate/#{number}").read_until(/part\..*part\./m)
        ensure
          open_gate(number.to_s)
          expect(one.answer.body).to eq("part.part.end.")
        end
        expect(quick).to be(true)
      end

      { "where the head gives the length" => ["/length/3"], "where the connection ends" => ["/parts/3", "Connection: close"],
        "where the connection ends by HTTP/1.0" => ["/parts/3", { version: "1.0" }] }.each do |what, (path, *lines)|
        it "leave at once #{what}" do
          keywords = lines.last.is_a?(Hash) ? lines.last : {}
          expect(at_once? { |one| expect(one.get(path, *lines.grep(String), **keywords).body).to eq("part." * 3) }).to be(true)
        end
      end

      it "leave before the connection is reset where the app raises an error after them, and once where it forks" do
        one = peer
        one.get("/")
        one.ask("/raise").read_until(/part\..*part\./m)
        expect { one.read_until(/never/) }.to raise_error(HttpPeer::Failed, /\Areset/)
        expect(Array.new(3) { peer.get("/fork").body }).to all(eq("part." * 4))
      end

      it "leave with the next responses where requests are pipelined" do
        one = peer
        one.get("/")
        few = (1..tries).any? do
          count = packets_for(one) do
            one.write(KeptPeer.request("/") * 16)
            16.times { expect(one.answer.body).to eq("hello") }
          end
          count < 8
        end
        expect(few).to be(true)
      end

      it "leave where a pipelined request takes long" do
        expect(before_gate?("/", "/wait/NAME", "hello", "waited")).to be(true)
      end

      it "leave where callbacks keep the next request waiting" do
        expect(before_gate?("/callback/NAME", "/", "called", "hello")).to be(true)
      end

      it "leave where a pipelined request is not there yet" do
        quick = at_once? do |one|
          one.write("#{KeptPeer.request("/")}GET / HTTP/1.1\r\n")
          expect(one.answer.body).to eq("hello")
        ensure
          one.write("Host: a\r\n\r\n")
          expect(one.answer.body).to eq("hello")
        end
        expect(quick).to be(true)
      end

      it "leave where a pipelined request takes the connection" do
        quick = at_once? do |one, number|
          one.write(KeptPeer.request("/") + KeptPeer.request("/hijack/#{number}"))
          expect(one.answer.body).to eq("hello")
        ensure
          open_gate(number.to_s)
          one.read_until(/late/)
        end
        expect(quick).to be(true)
      end
    end
  end
end
