# frozen_string_literal: true

require_relative "../../lib/fastrack/process/sd_notify"

# The spec has systemd's part: it listens on the socket that NOTIFY_SOCKET names.
RSpec.describe Fastrack::SdNotify, once: "a socket" do
  around do |example|
    Dir.mktmpdir("fastrack-notify") do |dir|
      @path = File.join(dir, "notify")
      @systemd = Socket.new(:UNIX, :DGRAM).tap { |socket| socket.bind(Addrinfo.unix(@path)) }
      example.run
      @systemd.close
    end
  end

  def notifier(more = {}) = described_class.new({ "NOTIFY_SOCKET" => @path }.merge(more))

  it "C6 reaches a socket with an abstract name" do
    name = "fastrack-spec-#{Process.pid}"
    abstract = Socket.new(:UNIX, :DGRAM).tap { |socket| socket.bind(Addrinfo.unix("\0#{name}")) }
    expect([described_class.new("NOTIFY_SOCKET" => "@#{name}").ready, abstract.recv(100)]).to eq([true, "READY=1"])
    abstract.close
  end

  it "C6 says nothing, and raises nothing, where nobody listens" do
    [{}, { "NOTIFY_SOCKET" => "" }, { "NOTIFY_SOCKET" => "vsock:2:1" }, { "NOTIFY_SOCKET" => "#{@path}.gone" },
     { "NOTIFY_SOCKET" => "/#{"a" * 200}" }].each do |environment|
      expect(described_class.new(environment).ready).to be(false), environment.inspect
    end
  end

  it "C6 does not wait for a systemd that does not read" do
    sent = 0
    sent += 1 while notifier.watchdog && sent < 10_000
    expect(sent).to be_between(1, 9_999)
  end

  it "C6 the watchdog is fed twice in the time that systemd waits, by the process that it waits for" do
    mine = { "WATCHDOG_USEC" => "3000000", "WATCHDOG_PID" => Process.pid.to_s }
    expect([notifier(mine).watchdog_interval, notifier(mine.except("WATCHDOG_PID")).watchdog_interval]).to eq([1.5, 1.5])
    expect([notifier(mine.merge("WATCHDOG_PID" => "1")).watchdog_interval, notifier.watchdog_interval]).to eq([nil, nil])
    expect(described_class.new(mine).watchdog_interval).to be_nil
  end
end
