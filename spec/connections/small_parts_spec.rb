# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/kept_helpers"

RSpec.describe "C4 Small parts of responses", once: "the packets of sockets" do
  # Far less than a request has to last for that the parts are in time by chance.
  let(:soon) { 0.1 }
  # Another process may have the processor at the wrong moment: one good try of so many will do.
  let(:tries) { 50 }

  # How many packets come while a client asks and gets its answers.
  def packets_for(one)
    before = one.packets
    yield
    one.packets - before
  end

  # Whether a client gets what it waits for at once; each try has a gate of its own.
  gates = (1..).each
  define_method(:at_once?) do |&wait|
    (1..tries).any? do
      one = peer
      one.get("/")
      seconds { wait.call(one, gates.next) } < soon
    end
  end

  # /parts/N: so many at once; /length/N the same with a length; /raise: two, and then an error; /fork: two, a child that ends, and
  # two; /gate/NAME: two, and the rest when the file NAME is there.
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
               else ["hello"]
               end
        [200, headers, body]
      }
    RUBY
    server.await_workers(1)
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
    end
  end
end
