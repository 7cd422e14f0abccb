# frozen_string_literal: true

require "zlib"
require "support/http_helpers"
require "support/http_strace"
require "support/kept_peer"

# As Rack::Deflater compresses: GzipWriter gives the head of gzip, each flushed part, and the end one by one.
RSpec.describe "a response that the app compresses as it sends it" do
  app = <<~'RUBY'
    require "zlib"

    class Compressed
      def initialize(path) = @path = path

      def each
        writer = Object.new
        writer.define_singleton_method(:write) { |part| yield(part); part.bytesize }
        gzip = Zlib::GzipWriter.new(writer)
        return gzip.close if @path == "/nothing"

        gzip.write("first,")
        gzip.flush
        sleep 0.002 until @path != "/slow" || File.exist?("go")

        gzip.write("second")
        gzip.flush
        gzip.close
      end
    end

    run ->(env) { [200, { "content-type" => "text/plain", "content-encoding" => "gzip" }, Compressed.new(env["PATH_INFO"])] }
  RUBY

  before(:context) { @traces = Dir.mktmpdir("fastrack-traces") }
  after(:context) { FileUtils.remove_entry(@traces) }

  def text(response) = Zlib.gunzip(response.body.b)

  it "leaves without a packet for the head of gzip alone, nor one for its end", :quiet, linux: "strace" do
    serve(app, wrapper: HttpStrace.wrapper(@traces))
    peer = KeptPeer.new(server)
    2.times { expect(text(peer.get("/"))).to eq("first,second") }
    peer.close
    sent = HttpStrace.new(@traces, @worker).calls.select { |call| call.name == "sendto" }.map { |call| call.arguments[/"(.{0,12})/, 1] }
    expect(sent.grep(/\Aa\\r\\n\\3/).size).to eq(2), sent.inspect
    expect(sent.grep(/\AHTTP/).size).to eq(2), sent.inspect
    expect(sent.grep(/\A0\\r\\n/)).to eq([])
    # Head and first part, the second part, the end. What goes before is no response.
    expect(sent.drop_while { |bytes| !bytes.start_with?("HTTP") }.size).to eq(6), sent.inspect
  end

  it "has its first part there while the app still makes the second, and is whole in the end" do
    serve(app)
    peer = HttpPeer.new(server).write(message("GET /slow HTTP/1.1", "Host: a"))
    # In one chunk after the head of gzip, flushed: it can be read.
    peer.read_until(/\r\n\r\na\r\n\x1f\x8b.{8}\r\n\h+\r\n.+\x00\x00\xff\xff\r\n/mn)
    server.write("go", "")
    peer.read_until(/\r\n0\r\n\r\n\z/n)
    expect(text(HttpResponse.parse(peer.received))).to eq("first,second")
    peer.close
  end

  it "is whole though there is nothing to compress" do
    serve(app)
    expect(text(talk("GET /nothing HTTP/1.1", "Host: a", "Connection: close"))).to eq("")
    expect(text(talk("GET / HTTP/1.1", "Host: a", "Connection: close"))).to eq("first,second")
  end
end
