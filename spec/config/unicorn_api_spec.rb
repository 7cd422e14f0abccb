# frozen_string_literal: true

require_relative "../../lib/fastrack/configuration/unicorn_api"

# What of server.listen a server's clients do not see.
RSpec.describe Fastrack::UnicornServerApi, once: "sockets" do
  def server(master_pid)
    configuration = instance_double("Fastrack::Configuration", backlog: 5)
    Class.new { include Fastrack::UnicornServerApi }.new.tap do |one|
      one.instance_variable_set(:@master_pid, master_pid)
      one.define_singleton_method(:configuration) { configuration }
      one.define_singleton_method(:listeners) { @listeners ||= [] }
    end
  end

  # In a worker: this process is not the master's.
  let(:worker) { server(-1) }

  it "C2 server.listen gives up after as many tries as were allowed, and says so" do
    TCPServer.open("127.0.0.1", 0) do |taken|
      place = "127.0.0.1:#{taken.addr[1]}"
      expect { worker.listen(place, tries: 3, delay: 0).join }
        .to output("fastrack: cannot listen on #{place}: the port is in use; trying again every 0.0 s\n" \
                   "fastrack: #{place} is still in use; giving up\n").to_stderr
      expect(worker.listeners).to eq([])
    end
  end

  it "C2 server.listen in the master, for all workers, is an error where something else listens" do
    TCPServer.open("127.0.0.1", 0) do |taken|
      expect { server(Process.pid).listen("127.0.0.1:#{taken.addr[1]}", tries: 1) }.to raise_error(Fastrack::AddressInUseError)
    end
  end

  it "C2 server.listen with what is no address is an error that says so" do
    expect { worker.listen("app") }.to raise_error(Fastrack::ConfigurationError, "server.listen must be a port, host:port, [IPv6]:port or a path")
  end
end
