# frozen_string_literal: true

require "fastrack"
require "fastrack/native"
require "fastrack/launcher"
require "fastrack/proxy/child"

# What a proxy that somebody has taken over can write to the master.
RSpec.describe "A proxy's lines", once: "messages to the master" do
  include CommandFolder

  let(:logged) { [] }

  before { allow(Fastrack::Log).to receive(:line) { |text, *| logged << text } }

  after do
    @child&.kill
    eventually { @child.ended? }
    @child.close
  end

  # A program in the place of the proxy's that says this, and waits.
  def saying(text)
    File.binwrite(path("said"), text)
    File.write(path("proxy"), "#!/bin/sh\ncat #{path("said")}\nexec sleep 600\n", perm: 0o755)
    allow(Fastrack::Proxy::Program).to receive(:path).and_return(path("proxy"))
    @child = Fastrack::Proxy::Child.new(double(message: ["{}\n", []]), nil, 0.0, strict: true)
  end

  ["started", "stats", "stats {", "stats [1]", 'stats {"a":"b"}', "lingering", "lingering 1", "lingering 1 2 3", "lingering #{"9" * 30} 1", "applied x", "refused x y", "info\xff\0x",
   "x" * 5000, "\xff"].each do |line|
    it "end it, and not the master, where one is #{line[0, 40].inspect}" do
      child = saying("ready \n#{line}\nready \n")
      eventually { [child.read(1.0), child.ended?].last }
      expect([child.ready?, child.ending, logged.size]).to eq([true, "was killed by SIGKILL", 1])
      expect(logged.first).to match(/\Athe proxy \(pid #{child.pid}\) has said what is no message: "[[:print:]]+"\z/)
    end
  end

  it "are its counters, its answers, and text for the log without an order for a terminal" do
    child = saying("ready \nstats {\"open\":3}\napplied 0\nrefused 7 no such file\nwarn \e[2K\rfastrack: Fastrack is ready\nlingering 1 2\nlingering 1 2\n")
    eventually { [child.read(1.0), child.lingers?].last }
    expect([child.stats, child.refusal, child.killed?]).to eq(['{"open":3}', "no such file", false])
    expect(logged).to eq(['proxy: \e[2K\rfastrack: Fastrack is ready', "the proxy (pid #{child.pid}) lingers for 1 stream and 2 sockets"])
  end
end
