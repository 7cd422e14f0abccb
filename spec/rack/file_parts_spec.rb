# frozen_string_literal: true

RSpec.describe "C5 a file that is not what is to be sent", once: "files, whatever Rack says" do
  app = <<~'RUBY'
    # Only its parts are right where it is a part of a file, or one whose size is not what it holds.
    Body = Struct.new(:to_path) { def each = yield("by each") }
    # As an app reads it.
    Whole = Class.new(Body) { def each = yield(File.read(to_path)) }
    run lambda { |env|
      case env["PATH_INFO"]
      when "/part" then [206, { "content-range" => "bytes 0-6/9" }, Body.new(File.join(Dir.pwd, "small"))]
      when "/all" then [206, { "content-range" => "bytes 0-8/9", "content-length" => "9" }, Body.new(File.join(Dir.pwd, "small"))]
      when "/small" then [200, {}, Body.new(File.join(Dir.pwd, "small"))]
      when "/empty" then [200, {}, Whole.new(File.join(Dir.pwd, "empty"))]
      else [200, {}, Whole.new(env["PATH_INFO"])]
      end
    }
  RUBY

  [false, true].each do |chunked|
    context chunked ? "in chunks" : "as it is" do
      before(:context) do
        serve(app, options: { "ChunkedTransfer" => chunked })
        server.write("small", "some text")
        server.write("empty", "")
      end

      # Another response follows, so that nothing of this one is missing or too much.
      def kept(path)
        request = message("GET #{path} HTTP/1.1", "Host: a") + message("GET /small HTTP/1.1", "Host: a", "Connection: close")
        HttpResponse.all(HttpPeer.exchange(server, request).first).map(&:body)
      end

      { "is asked for its parts where it is a 206 that does not say its length" => ["/part", "by each"],
        "is sent where a 206 has all of it" => ["/all", "some text"], "may be empty" => ["/empty", ""] }.each do |what, (path, body)|
        it("C5 #{what}") { expect(kept(path)).to eq([body, "some text"]) }
      end

      it "C5 is asked for its parts where its size is not what it holds", linux: "sysfs and proc" do
        %w[/sys/devices/system/cpu/online /proc/version].each do |path|
          expect(kept(path)).to eq([File.read(path), "some text"]), path
        end
      end
    end
  end
end
