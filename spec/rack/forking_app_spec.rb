# frozen_string_literal: true

RSpec.describe "an app that starts processes" do
  [false, true].each do |unix|
    context unix ? "over a unix socket" : "over TCP" do
      before(:context) { serve(HttpApps.ru(:forking), unix: unix) }
      after(:context) { end_children }

      def end_children
        journal.lines.grep(/\A\d+\z/).each do |pid|
          Process.kill(:KILL, pid.to_i)
        rescue Errno::ESRCH
          nil
        end
      end

      # The response and the end of its connection, which others may hold open.
      def ended_response(path)
        bytes, ending = HttpPeer.exchange(server, message("GET #{path} HTTP/1.1", "Host: a", "Connection: close"))
        expect(ending).to eq(:closed)
        HttpResponse.parse(bytes)
      end

      it "B-fork runs commands as in any Ruby program" do
        expect([ended_response("/system").body, ended_response("/backtick").body]).to eq(["true", "from a command\n"])
      end

      %w[/spawn /fork].each do |path|
        it "B-fork the response comes to an end though a process stays behind, which has none of the server's descriptors (#{path})" do
          HttpPeer.open(server) do |parked|
            parked.write("GET / HTTP/1.1\r\n")
            server.get("/")
            child = ended_response(path).body[/\d+/].to_i
            inherited = ProcessTable.descriptors(Process.pid).values
            kept = -> { ProcessTable.descriptors(child).values.compact.grep(/\A(?:socket|pipe):|memfd|epoll/) - inherited }
            eventually(20, -> { "it has #{kept.call}" }) { kept.call.empty? }
            expect(ProcessTable.alive?(child)).to be(true)
          end
        end
      end

      it "B-fork a process that stays behind keeps neither port nor path when the server is gone" do
        ended = Server.start(ru: HttpApps.ru(:forking), unix: unix, options: { "MaxWorkers" => 1 })
        child = ended.get("/fork").body[/\d+/].to_i
        ended.connect(&:itself)
        listening = ended.listening
        ended.stop
        expect(ProcessTable.alive?(child)).to be(true)
        expect { unix ? UNIXSocket.new(listening[:path]) : TCPSocket.new("127.0.0.1", listening[:port]) }.to raise_error(SystemCallError)
      ensure
        Process.kill(:KILL, child) if child
      end

      # The rest has nothing to do with the kind of socket.
      next if unix

      it "B-fork the process that stays behind has no file of an upload that is coming in" do
        HttpPeer.open(server) do |upload|
          upload.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n" + ("x" * 1_500_000))
          files = ->(pid) { ProcessTable.descriptors(pid).values.compact.grep(/ \(deleted\)\z/).grep_v(%r{memfd|\A/dev/null}) }
          eventually { server.get("/") && files.call(@worker).any? }
          child = ended_response("/fork").body[/\d+/].to_i
          eventually(20, -> { "it has #{files.call(child)}" }) { files.call(child).empty? }
        end
      end

      it "B-fork Process.daemon ends the worker, and the process that goes on has none of its connections" do
        daemonized = Server.start(ru: HttpApps.ru(:forking), options: { "MaxWorkers" => 1 })
        worker = daemonized.await_workers(1).first
        HttpPeer.open(daemonized) do |parked|
          parked.write("GET / HTTP/1.1\r\nHost: a\r\n")
          daemonized.get("/")
          expect(HttpPeer.exchange(daemonized, "GET /daemon HTTP/1.1\r\nHost: a\r\n\r\n").first).to eq("")
          daemon = eventually { daemonized.lines_of("journal").grep(/\A\d+\z/).first&.to_i }
          sockets = -> { ProcessTable.descriptors(daemon).values.compact.grep(/\Asocket:/) }
          eventually(20, -> { "it has #{sockets.call}" }) { sockets.call.empty? }
          expect(parked.read_to_end).to eq("")
          daemonized.await_workers(1) { |found| found != [worker] }
        ensure
          Process.kill(:KILL, daemon) if daemon
        end
      end

      # On a unix socket the worker waits for a client that was accepted a moment ago.
      it "B-fork a process that a background thread forks while a client is waited for does not hold its connection" do
        expect(ended_response("/fork-on").body).to eq("forking")
        peers = []
        until journal.lines.include?("forked")
          peers << HttpPeer.new(server)
          # Some of the millisecond for which it waits.
          sleep 0.0008
          peers.last.write(message("GET / HTTP/1.1", "Host: a", "Connection: close"))
          peers.last.read_until(/\r\n\r\n\d+\z/)
        end
        still_open = peers.reject { |peer| peer.anything_within?(10) && peer.read_to_end && peer.ending == :closed }
        expect(still_open.size).to eq(0)
        expect_worker_alive
      end

      it "B-fork happens once when another wrapper of fork raises a ThreadError, and its child has none of the server's sockets" do
        server = Server.start(ru: <<~'RUBY', options: { MaxWorkers: 1 })
          Process.singleton_class.prepend(Module.new do
            def _fork = super.tap { |pid| raise ThreadError, "can't alloc thread" if pid.zero? && $raise }
          end)
          run lambda { |_env|
            $raise = true
            begin
              child = fork { exit!(1) }
            rescue ThreadError
              File.write("children", "#{Dir.children("/proc/self/fd").size}\n", mode: "a")
              exit!(0)
            end
            Process.wait(child)
            [200, {}, ["#{$?.exitstatus} #{Dir.children("/proc/self/fd").size}"]]
          }
        RUBY
        status, open = server.get.body.split.map(&:to_i)
        expect([status, server.lines_of("children").size]).to eq([0, 1])
        expect(server.lines_of("children").first.to_i).to be < open
      end

      it "B-fork a child that ends takes no client along" do
        HttpPeer.open(server) do |parked|
          parked.write("GET / HTTP/1.1\r\nHost: a\r\n")
          server.get("/")
          expect([ended_response("/fork-exit").body, ended_response("/fork-raise").body]).to eq(["0", "1"])
          parked.write("Connection: close\r\n\r\n")
          expect(HttpResponse.parse(parked.read_to_end).body).to eq(@worker.to_s)
        end
      end

      it "B-fork a child that comes back to the server does not answer a second time" do
        bytes, = HttpPeer.exchange(server, message("GET /fork-both-return HTTP/1.1", "Host: a", "Connection: close"))
        expect(HttpResponse.all(bytes).map(&:body)).to eq(["from the parent"])
        expect_worker_alive
      end
    end
  end
end
