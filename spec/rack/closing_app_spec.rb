# frozen_string_literal: true

RSpec.describe "an app that closes what is not its own" do
  app = <<~'RUBY'
    close = ->(one) { one.close unless one.closed? }
    # Ruby keeps some to itself.
    each = ->(&block) { (3..255).each { |number| block.call(number) rescue nil } }
    listening = ->(socket) { socket.getsockopt(:SOCKET, :ACCEPTCONN).bool }
    run lambda { |env|
      case env["PATH_INFO"]
      when "/sockets" then ObjectSpace.each_object(BasicSocket, &close)
      when "/objects" then ObjectSpace.each_object(IO) { |one| close.call(one) rescue nil }
      when "/descriptors" then each.call { |number| IO.for_fd(number).close }
      when "/listeners" then each.call { |number| IO.for_fd(number).close if listening.call(Socket.for_fd(number).tap { |one| one.autoclose = false }) }
      when "/program" then exec("sh", "-c", "sleep 2.5; echo $$ > program; exec sleep 600")
      when "/pollers" then each.call { |number| IO.for_fd(number).close if File.readlink("/proc/self/fd/#{number}").include?("eventpoll") }
      end
      # The next client is for the other worker.
      sleep 0.005
      [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
    }
  RUBY

  it "B-closed is not taken for one that runs another program in its worker's place" do
    serve(app, options: { "MaxWorkers" => 2 })
    server.await_workers(2)
    server.raw("GET /program HTTP/1.1\r\nHost: h\r\n\r\n")
    program = eventually { server.lines_of("program").first }.to_i
    expect(server.workers).to include(program)
    expect(server.log).not_to include("no connection to the master")
  end

  # What it closes, and the log's line about it.
  { "/sockets" => /^fastrack: worker \d \(pid PID\) has no connection to the master any more: has the app closed all sockets\? Replacing it$/,
    "/objects" => /^fastrack: worker \d \(pid PID\) has no connection to the master any more/,
    "/descriptors" => /^fastrack: the app has closed sockets or other descriptors of the server: this worker ends and is replaced \(worker PID\)$/,
    "/listeners" => /^fastrack: the app has closed sockets or other descriptors of the server: .* \(worker PID\)$/,
    "/pollers" => /^fastrack: the app has closed sockets or other descriptors of the server: .* \(worker PID\)$/ }.each do |path, line|
    it "B-closed has its worker replaced, with a line in the log, while the others go on (#{path})" do
      serve(app, options: { "MaxWorkers" => 2, "ErrRespawnInterval" => 0.1 })
      before = server.await_workers(2)
      # Its own connection may be among what it closes.
      HttpPeer.open(server) { |peer| peer.write("GET #{path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").read_to_end }
      answers = []
      after = eventually(20, -> { "#{before} then #{server.workers}:\n#{server.log}" }) do
        answers.concat(Array.new(4) { Thread.new { server.get("/") } }.map(&:value))
        server.workers.then { |found| found if found.size == 2 && found != before }
      end
      expect([(before & after).size, answers.map(&:status).uniq]).to eq([1, [200]])
      expect(answers.map { |one| one.body.to_i } - before - after).to eq([])
      expect(server.log).to match(Regexp.new(line.source.sub("PID", (before - after).first.to_s)))
      expect(server.log).not_to match(/RuntimeError|SIG|\.rb:\d/)
    end
  end
end
