# frozen_string_literal: true

require_relative "spec_helper"
require "support/http_helpers"
require "support/http_peer"

# No state of a worker lasts for ever: the master knows each, and what it may take.
RSpec.describe "The time that a worker may take" do
  def expect_log(server, pattern)
    eventually(20, -> { "no #{pattern.inspect} in:\n#{server.log}" }) { server.log.match?(pattern) }
  end

  def frozen(pid)
    Process.kill(:STOP, pid)
    eventually { ProcessTable.entry(pid).state == "T" }
  end

  # Waits until others have replaced these workers.
  def await_others(server, before)
    server.await_workers(before.size) { |found| (found & before).empty? }
  end

  describe "for callbacks after a response" do
    let(:app) { <<~'RUBY' }
      run lambda { |env|
        text = ->(body) { [200, { "content-type" => "text/plain" }, [body]] }
        callback = env["PATH_INFO"].delete_prefix("/")
        block = lambda do |*|
          File.write("called", "#{Process.pid}\n", mode: "a")
          env["fastrack.timeout"].call(Float(env["QUERY_STRING"])) unless env["QUERY_STRING"].empty?
          sleep
        end
        (env["rack.#{callback}"] ||= []) << block if %w[after_reply response_finished].include?(callback)
        text.call(Process.pid.to_s)
      }
    RUBY

    def hang(server, path = "/after_reply")
      called = server.lines_of("called").size
      response = server.get(path)
      eventually { server.lines_of("called").size > called }
      response
    end

    (HttpApps.rack3? ? %w[after_reply response_finished] : %w[after_reply]).each do |callback|
      it "is RequestTimeout: rack.#{callback} that sleeps for ever costs its worker, which is replaced" do
        server = Server.start(ru: app, options: { MaxWorkers: 2, RequestTimeout: 0.5 })
        before = server.await_workers(2)
        2.times { expect(hang(server, "/#{callback}").status).to eq(200) }
        await_others(server, before)
        expect(server.get.status).to eq(200)
        expect_log(server, %r{^fastrack: callbacks of GET /#{callback} have taken [01]\.\d s: this worker ends \(worker #{before.first}\)$})
        expect_log(server, %r{^    #{server.dir}/config.ru:7:in .*sleep'$})
        expect_log(server, %r{^fastrack: worker \d \(pid #{before.last}\) exited with status 124 \(request timeout\) while serving callbacks of GET /#{callback} for \d\.\d s$})
      end
    end

    it "does not end the worker's other connections" do
      server = Server.start(ru: app, options: { MaxWorkers: 1, RequestTimeout: 0.5 })
      HttpPeer.open(server) do |idle|
        idle.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        idle.read_until(/\r\n\r\n\d+/)
        HttpPeer.open(server) do |hanging|
          hanging.write("GET /after_reply HTTP/1.1\r\nHost: h\r\n\r\n")
          hanging.read_until(/\r\n\r\n\d+/)
          [idle, hanging].each do |peer|
            peer.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            expect(peer.read_until(/\r\n\r\n\d+HTTP.*\r\n\r\n\d+/m).scan(/HTTP\S+ 200/).size).to eq(2)
          end
        end
      end
    end

    it "can be set by the callback itself" do
      server = Server.start(ru: app, options: { MaxWorkers: 1, RequestTimeout: 30 })
      before = server.await_workers(1)
      hang(server, "/after_reply?0.2")
      await_others(server, before)
    end
  end
end
