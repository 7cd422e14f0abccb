# frozen_string_literal: true

require "rbconfig"
require "socket"

module Deploys
  # A server with its proxy, whose master may be replaced.
  class DeployedServer
    ROOT = File.expand_path("../../..", __dir__)
    DEADLINE = 120

    APP = <<~RUBY
      class Events
        def each
          yield "data: first\\n\\n"
          sleep
        end
      end

      run lambda { |env|
        case env["PATH_INFO"]
        when "/events" then [200, { "content-type" => "text/event-stream" }, Events.new]
        when "/socket"
          socket = env["rack.hijack"].call
          socket.write("HTTP/1.1 101 Switching Protocols\\r\\nConnection: upgrade\\r\\nUpgrade: echo\\r\\n\\r\\n")
          Thread.new do
            while (line = socket.gets) do socket.write(line) end
            socket.close
          end
          [-1, {}, []]
        else [200, { "content-type" => "text/plain" }, ["ok"]]
        end
      }
    RUBY

    # @return [Integer]
    attr_reader :port, :tls_port

    # @param folder [String]
    # @param config [String] lines of the ConfigFile
    def initialize(folder, config)
      @folder = folder
      File.write("#{folder}/config.ru", APP)
      system("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout", "#{folder}/a.key", "-out", "#{folder}/a.pem",
             err: File::NULL, exception: true)
      @port, @tls_port = free_ports
      File.write("#{folder}/fastrack.rb", "h2c true\nbind 'tcp://127.0.0.1:#{@port}'\nbind 'ssl://127.0.0.1:#{@tls_port}?cert=a.pem&key=a.key'\n#{config}")
      @pid = spawn(RbConfig.ruby, "#{ROOT}/exe/fastrack", "-C", "fastrack.rb", "-e", "production", chdir: folder, pgroup: true, %i[out err] => "#{folder}/log")
      await("is ready", 1)
    end

    def log = File.read("#{@folder}/log", encoding: "UTF-8").scrub

    # @return [Integer] pid of the master that serves
    def master = log.scan(/is ready Workers:\d+ Pid:(\d+)/).last.first.to_i

    # Has a new master take over, and waits for the end of the old one.
    def replace_master
      ended = count("the old master has ended")
      Process.kill(:USR2, master)
      await("the old master has ended", ended + 1)
    end

    # The same, without waiting for the end.
    def begin_to_replace_master
      ready = count("is ready Workers")
      Process.kill(:USR2, master)
      await("is ready Workers", ready + 1)
    end

    # Loads the app anew.
    def reload
      ready = count("is ready Workers")
      Process.kill(:HUP, master)
      await("is ready Workers", ready + 1)
    end

    # Kills a worker.
    def kill_worker
      children = File.read("/proc/#{master}/task/#{master}/children").split.map(&:to_i)
      children += children.flat_map { |pid| File.read("/proc/#{pid}/task/#{pid}/children").split.map(&:to_i) }
      workers = children.select { |pid| File.read("/proc/#{pid}/cmdline").start_with?("fastrack worker") }
      Process.kill(:KILL, workers.sample) if workers.any?
    rescue SystemCallError
      # It has just been recycled.
      nil
    end

    def count(text) = log.scan(text).size

    def await(text, times)
      deadline = now + DEADLINE
      until count(text) >= times
        abort "no #{times} of #{text.inspect} within #{DEADLINE} s:\n#{log}" if now > deadline
        sleep 0.02
      end
    end

    def stop
      Process.kill(:TERM, master)
      deadline = now + 10
      sleep 0.05 until ended? || now > deadline
      Process.kill(:KILL, -@pid)
    rescue Errno::ESRCH
      nil
    end

    private

    def free_ports
      listeners = Array.new(2) { TCPServer.new("127.0.0.1", 0) }
      listeners.map { |listener| listener.addr[1] }
    ensure
      listeners&.each(&:close)
    end

    def ended? = Process.getpgid(master).nil?

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
