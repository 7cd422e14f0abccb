# frozen_string_literal: true

require_relative "../support/lone_proxy"

RSpec.describe "the proxy: a slow disk", once: "the program knows no Ruby" do
  before do
    skip "no strace" unless system("strace", "-V", %i[out err] => File::NULL)
    @dir = Dir.mktmpdir("fastrack-disk")
    Dir.mkdir("#{@dir}/public")
    File.write("#{@dir}/public/large", "a" * 100_000)
  end

  after { FileUtils.remove_entry(@dir) if @dir }

  # From now on the kernel has nothing of the files in memory, and each read of the disk takes half a minute.
  def slow_down(pid)
    said, theirs = IO.pipe
    tracer = spawn(*%w[strace -f -e signal=none -e trace=preadv2,pread64 -e inject=preadv2:error=EAGAIN -e inject=pread64:delay_enter=30s],
                   "-o", "#{@dir}/trace", "-p", pid.to_s, err: theirs)
    theirs.close
    expect(said.wait_readable(GcMode.patient(20))&.gets).to include("attached")
    yield
  ensure
    Process.kill(:KILL, tracer)
    Process.wait(tracer)
    said.close
  end

  it "keeps the client of the file waiting, and no other client of the same thread" do
    LoneProxy.open(@dir, public_files: "#{@dir}/public", threads: 1, graceful_timeout: 0) do |proxy|
      slow_down(proxy.pid) do
        waiting = proxy.connect
        waiting.write("GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        expect(waiting.gets("\r\n\r\n")).to match(/\AHTTP\/1.1 200 .*content-length: 100000\r/mi)
        served = Array.new(3) do
          client, worker = proxy.ask
          worker.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
          client.gets("\r\n\r\n")
          client.read(2)
        end
        expect([served, waiting.wait_readable(0)]).to eq([%w[hi hi hi], nil])
      end
    end
  end
end
