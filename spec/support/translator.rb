# frozen_string_literal: true

require "fileutils"
require "socket"
require "tmpdir"
require_relative "edge"
require_relative "folder"

# Takes the requests of HTTP/1.1 clients to a server by HTTP/2 with TLS: nghttpx(1).
class Translator
  PROGRAM = ENV["PATH"].to_s.split(":").push("/usr/sbin").map { |folder| File.join(folder, "nghttpx") }.find { |path| File.executable?(path) }

  # nghttpx would add fields, change paths and end idle connections.
  OPTIONS = %w[
    --single-process --insecure --no-ocsp --no-via --no-server-rewrite --no-location-rewrite --no-add-x-forwarded-proto
    --no-strip-incoming-x-forwarded-proto --frontend-read-timeout=1h --frontend-write-timeout=1h --frontend-keep-alive-timeout=1h
    --backend-read-timeout=1h --backend-write-timeout=1h --stream-read-timeout=1h --stream-write-timeout=1h --log-level=ERROR
  ].freeze

  class << self
    # The address of a server behind it.
    def place = "ssl://127.0.0.1:0?cert=#{folder}/a.pem&key=#{folder}/a.key"

    private

    # One certificate, and its key, for all servers of this process. Those of another user read it, too.
    def folder
      @folder ||= Dir.mktmpdir("fastrack-front").tap do |dir|
        at_exit { FileUtils.rm_rf(dir) }
        File.chmod(0o755, dir)
        Edge.files.each { |name, text| Folder.write(dir, name, text) }
      end
    end
  end

  attr_reader :port

  # @param port [Integer] the server's
  def initialize(port, log)
    listener = TCPServer.new("127.0.0.1", 0)
    listener.listen(1024)
    @port = listener.addr[1]
    # It takes a listener over as from its predecessor.
    @pid = spawn({ "NGHTTPX_ACCEPT_1" => "tcp,#{listener.fileno}" }, PROGRAM, "--frontend=127.0.0.1,#{@port};no-tls",
                 "--backend=127.0.0.1,#{port};;proto=h2;tls;sni=localhost", "--conf=/dev/null", "--errorlog-file=#{log}", *OPTIONS,
                 listener.fileno => listener.fileno, in: File::NULL, %i[out err] => [log, "a"], close_others: true)
    listener.close
  end

  def stop
    Process.kill(:KILL, @pid)
    Process.wait(@pid)
  end
end
