# frozen_string_literal: true

require "fiddle"
require "io/nonblock"
require_relative "../../lib/fastrack/native"

# The kernel wakes one worker for a new client (EPOLLEXCLUSIVE, epoll_ctl(2)). Without a master here, so that no new
# worker finds the client by chance.
RSpec.describe "a client for whom a worker was woken that is stopping", once: "sockets of the engine", linux: "EPOLLEXCLUSIVE" do
  # Blocks in read(2) and keeps Ruby's lock: the whole process stands still, but for the thread that is woken.
  standstill = Fiddle::Function.new(Fiddle.dlopen(nil)["read"], [Fiddle::TYPE_INT, Fiddle::TYPE_VOIDP, Fiddle::TYPE_SIZE_T],
                                    Fiddle::TYPE_SSIZE_T, need_gvl: true)

  # The pid of a process that serves with an engine of its own, has run the block in a thread, and waits for clients.
  def work(listener)
    ready, say = IO.pipe
    pid = fork do
      engine = Fastrack::Engine.new([{ fd: listener.fileno, tcp: true, env: {}.freeze }], { timeout: 30.0 })
      trap(:TERM) { engine.stop }
      Thread.new do
        # In epoll_wait: Ruby has let go of it, and so has the CPU (proc(5): S).
        sleep 0.01 until Thread.main.stop? && File.read("/proc/self/task/#{Process.pid}/stat")[/\) (\w)/, 1] == "S"
        say.write("ready")
        yield if block_given?
      end
      engine.run(->(_env) { [200, {}, [Process.pid.to_s]] }, 0)
    ensure
      exit!(0)
    end
    say.close
    ready.read(5)
    ready.close
    pid
  end

  it "B-wakeup is served, though nobody else comes" do
    listener = TCPServer.new("127.0.0.1", 0)
    hold, release = IO.pipe
    hold.nonblock = false
    stopping = work(listener) { standstill.call(hold.fileno, "\0", 1) }
    other = work(listener)
    client = TCPSocket.new("127.0.0.1", listener.addr[1])
    client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    expect(client.wait_readable(0.1)).to be_nil
    Process.kill(:TERM, stopping)
    release.write("x")
    expect([client.wait_readable(20), HttpResponse.parse(client.read).body]).to eq([client, stopping.to_s])
    expect(Process.wait(stopping)).to eq(stopping)
    stopping = nil
  ensure
    [stopping, other].compact.each { |pid| Process.kill(:KILL, pid) && Process.wait(pid) }
    [listener, hold, release, client].compact.each(&:close)
  end
end
