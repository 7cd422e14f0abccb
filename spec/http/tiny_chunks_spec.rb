# frozen_string_literal: true

RSpec.describe "a long body that comes in chunks of one byte", once: "bytes on the wire" do
  before(:context) { @traces = Dir.mktmpdir("fastrack-traces") }
  after(:context) { FileUtils.remove_entry(@traces) }

  # So much of it that all that follows goes to a file.
  first = 1024 * 1024
  chunks = 200_000

  it "B-chunk costs one write for what was read at once, not one for each chunk" do
    serve('run ->(env) { [200, {}, [env["rack.input"].read.bytesize.to_s]] }', wrapper: HttpStrace.wrapper(@traces))
    body = "#{first.to_s(16)}\r\n#{"x" * first}\r\n#{"1\r\nx\r\n" * chunks}0\r\n\r\n"
    response = talk("POST / HTTP/1.1", "Host: a", "Connection: close", "Transfer-Encoding: chunked", body: body)
    expect(response.body).to eq((first + chunks).to_s)
    # A thread of its own writes.
    calls = Dir.children(@traces).flat_map { |name| HttpStrace.new(@traces, name[/\d+\z/]).calls }
    writes = calls.count { |call| call.name == "pwrite64" }
    expect(writes).to be_between(1, calls.count { |call| call.name == "recvfrom" })
    expect(writes).to be < chunks / 100
  end
end
