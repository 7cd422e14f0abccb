# frozen_string_literal: true

# What Rhebok's own spec_06 checks with curl, of Fastrack.
RSpec.describe "A18 Rhebok's spec_06: curl, to the option ChunkedTransfer" do
  # The body, and what curl -v tells about the request (>) and the response (<).
  def curl(path, *arguments)
    body, told, status = Open3.capture3("curl", "-sv", "--max-time", GcMode.patient(20).to_s, *arguments, server.url(path), stdin_data: "", binmode: true)
    raise "curl ended with #{status.exitstatus}: #{told}" unless status.success?

    [body, *%w[> <].map { |mark| told.lines(chomp: true).grep(/\A#{mark}/).join("\n") }]
  end

  def expect_seen(body)
    env = Marshal.load(body) # rubocop:disable Security/MarshalLoad -- written by the app
    expect(env.keys.grep(/TRANSFER.ENCODING/i)).to be_empty
    expect(env).to include("CONTENT_LENGTH" => File.size(__FILE__).to_s, "test.postdata" => File.binread(__FILE__))
  end

  it "A18 takes chunks after 100 Continue, and answers in chunks; and HTTP/1.0 without them" do
    serve(HttpApps.ru(:rhebok), options: { "ChunkedTransfer" => 1 })
    type = ["-X", "POST", "-H", "Content-Type: text/plain"]
    body, asked, told = curl("/remove_length", *type, "-T", __FILE__, "-H", "Transfer-Encoding: chunked", "-H", "Expect: 100-continue")
    expect(asked).to match(/^> Transfer-Encoding: chunked\s*$/).and match(/^> Expect: 100-continue\s*$/)
    expect([told.scan(%r{^< HTTP/1\.1 (\d+)}).flatten, told]).to match([%w[100 200], /^< Transfer-Encoding: chunked\s*$/])
    expect(told).not_to match(/^< Connection:/)
    expect_seen(body)
    body, _, told = curl("/remove_length", *type, "--http1.0", "--data-binary", "@#{__FILE__}")
    expect([told.scan(%r{^< HTTP/1\.1 (\d+)}).flatten, told]).to match([%w[200], /^< Connection: close\s*$/])
    expect(told).not_to match(/^< Transfer-Encoding:/)
    expect_seen(body)
  end
end
