# frozen_string_literal: true

# A body that can only be called writes to the socket itself, and the close ends it.
RSpec.describe "D11 the end of a callable body", if: HttpApps.rack3? do
  before(:context) { serve(<<~'RUBY') }
    run lambda { |env|
      body = ->(io) { io.write("2\r\nhi\r\n0\r\n\r\n"); io.close }
      case env["PATH_INFO"]
      when "/chunks" then [200, { "transfer-encoding" => "chunked" }, body]
      when "/switch" then [101, { "upgrade" => "echo" }, body]
      when "/nobody" then [101, { "upgrade" => "echo" }, ["hi"]]
      else [200, {}, []]
      end
    }
  RUBY

  def answered(path, version) = HttpPeer.exchange(server, message("GET #{path} HTTP/#{version}", "Host: a", "Connection: keep-alive")).first

  it "D11 is the app's last chunk for HTTP/1.1; chunks that nobody can decode are a 500 for HTTP/1.0" do
    expect(HttpResponse.parse(answered("/chunks", "1.1")).body).to eq("hi")
    expect(HttpResponse.parse(answered("/chunks", "1.0")).status).to eq(500)
    expect_worker_alive
  end

  it "D11 is the app's after a 101, which is a 500 where the body takes no socket" do
    expect(answered("/switch", "1.1")).to end_with("upgrade: echo\r\nConnection: Upgrade\r\n\r\n2\r\nhi\r\n0\r\n\r\n")
    expect(HttpResponse.parse(answered("/nobody", "1.1")).status).to eq(500)
    expect_worker_alive
  end
end
