# frozen_string_literal: true

RSpec.describe "A12 rack.input" do
  mebibyte = 1024 * 1024

  before(:context) do
    @tmpdir = Dir.mktmpdir("fastrack-input")
    serve(HttpApps.ru(:input_probe), env: { "TMPDIR" => @tmpdir })
  end

  after(:context) { FileUtils.remove_entry(@tmpdir) }

  # The app's answer to a body, as the Ruby object that it was.
  def ask(path, body, *fields)
    fields = ["Content-Length: #{body.bytesize}"] if fields.empty?
    response = talk("POST #{path} HTTP/1.1", "Host: a", *fields, body: body)
    expect(response.status).to eq(200), response.body
    eval(response.body) # rubocop:disable Security/Eval -- written by the app of this spec
  end

  def chunked(body, size)
    pieces = body.empty? ? [] : (0...body.bytesize).step(size).map { |at| body.byteslice(at, size) }
    pieces.map { |piece| "#{piece.bytesize.to_s(16)}\r\n".b << piece << "\r\n" }.join << "0\r\n\r\n"
  end

  def ask_chunked(path, body, size) = ask(path, chunked(body, size), "Transfer-Encoding: chunked")

  # Every byte there is, in an order that shows when a part is lost or doubled.
  def bytes(size) = Random.new(size).bytes(size)

  { "StringIO" => [1, mebibyte], "Tempfile" => [mebibyte + 1] }.each do |kind, sizes|
    it "A12 is a binary #{kind} of #{sizes.join(" or ")} bytes, which can be rewound" do
      sizes.product([%i[ask], [:ask_chunked, 60_000]]).each do |size, (how, *arguments)|
        expect(send(how, "/kind", bytes(size), *arguments)).to eq([kind, "ASCII-8BIT", "ASCII-8BIT", size])
        expect(send(how, "/twice", bytes(size), *arguments)).to eq([size, true])
      end
    end
  end

  [false, true].each do |streamed|
    it "A12 is so, too, where the app has no encoding for files that ASCII fits#{" (StreamBody)" if streamed}" do
      odd = Server.start(ru: <<~'RUBY', options: { MaxWorkers: 1, StreamBody: streamed })
        $VERBOSE = nil
        run lambda { |env|
          Encoding.default_external = Encoding::UTF_7
          [200, {}, [env["rack.input"].read.then { |body| "#{body.encoding} #{body.bytesize}" }]]
        }
      RUBY
      answers = Array.new(2) { odd.request("POST", "/", { "Content-Length" => 2 * mebibyte }, bytes(2 * mebibyte)).body }
      expect(answers).to eq(["ASCII-8BIT #{2 * mebibyte}"] * 2)
    end
  end

  it "A12 holds every body whole: lengths around each boundary" do
    [0, 1, 2, 16_383, 16_384, 16_385, 65_535, 65_537, mebibyte - 1, mebibyte, mebibyte + 1, 3 * mebibyte].each do |size|
      body = bytes(size)
      expect(ask("/digest", body)).to eq([size.to_s, nil, Digest::SHA256.hexdigest(body)])
    end
  end

  it "A12 decodes chunked bodies: CONTENT_LENGTH is set, TRANSFER_ENCODING is gone" do
    [[0, 1], [1, 1], [10, 3], [5_000, 1], [70_000, 16_384], [mebibyte, 9_999], [mebibyte + 1, 99_999], [3 * mebibyte, 65_536]]
      .each do |size, step|
        body = bytes(size)
        expect(ask_chunked("/digest", body, step)).to eq([size.to_s, nil, Digest::SHA256.hexdigest(body)])
      end
  end

  it "A12 reads as the Rack SPEC says: read(length, buffer), gets, each, nil and empty at the end" do
    expect(ask("/pieces", "0123456789")).to eq(["012", "", "34", "34", "56789"])
    expect([ask("/lines", "one\ntwo\nthree"), ask("/end", "x")]).to eq([["one\n", %W[two\n three]], ["", nil, nil]])
    expect([ask("/end", ""), ask("/end", bytes(mebibyte + 1))]).to eq([["", nil, nil], ["", nil, nil]])
  end

  it "A12 keeps a large body in a file that has no name any more" do
    expect([ask("/file", bytes(2 * mebibyte)), Dir.children(@tmpdir)]).to eq([["Tempfile", nil, 0, 2 * mebibyte], []])
  end

  it "A12 leaves nothing in the tmpdir while a large body comes in, nor when it is cut off" do
    HttpPeer.open(server) do |peer|
      peer.write(message("POST / HTTP/1.1", "Host: a", "Content-Length: #{3 * mebibyte}", body: bytes(2 * mebibyte)))
      eventually { ProcessTable.descriptors(@worker).values.compact.any? { |name| name.start_with?(@tmpdir) } }
      expect(Dir.children(@tmpdir)).to be_empty
    end
    eventually { ProcessTable.descriptors(@worker).values.compact.none? { |name| name.start_with?(@tmpdir) } }
    expect(Dir.children(@tmpdir)).to be_empty
  end

  it "A12 closes the files of large bodies after their requests, without waiting for the GC" do
    3.times { ask("/twice", bytes(2 * mebibyte)) }
    expect(ask("/open-files", "").grep(/#{@tmpdir}/)).to be_empty
    # Also where the app never looks at one.
    expect(ask("/open-files", bytes(4 * mebibyte)).grep(/#{@tmpdir}/).uniq.size).to eq(1)
  end

  it "A12 gives an input of its own to each request: one that is closed or used up harms no other" do
    3.times { expect(ask("/spoil", "")).to eq("closed") }
    expect([ask("/end", ""), ask("/spoil", "abc")]).to eq([["", nil, nil], "closed"])
    expect([ask("/spoil", bytes(2 * mebibyte)), ask("/twice", "abc")]).to eq(["closed", [3, true]])
  end
end

RSpec.describe "B-status the option MaxBodySize" do
  before(:context) { serve(HttpApps.ru(:echo), options: { "MaxBodySize" => 1000 }) }

  it "B-status-413 takes a body up to the limit, and refuses a longer one before it is sent" do
    expect(talk("POST / HTTP/1.1", "Host: a", "Content-Length: 1000", body: "x" * 1000).status).to eq(200)
    expect(talk("POST /no HTTP/1.1", "Host: a", "Content-Length: 1001").status).to eq(413)
    expect(talk("POST /no HTTP/1.1", "Host: a", "Expect: 100-continue", "Content-Length: 1001").status).to eq(413)
    expect(journal.lines.grep(/no/)).to be_empty
  end

  it "B-status-413 counts a chunked body as it comes" do
    fits = "1f4\r\n#{"x" * 500}\r\n" * 2
    chunked = ["POST /c HTTP/1.1", "Host: a", "Transfer-Encoding: chunked"]
    expect(talk(*chunked, body: "#{fits}0\r\n\r\n").status).to eq(200)
    expect([talk(*chunked, body: "#{fits}1\r\nx\r\n0\r\n\r\n").status, journal.count("POST /c")]).to eq([413, 1])
  end

  it "leaves no file open when another thread of the app's raises while it is made" do
    require "fastrack/rack/input"
    allow(Tempfile).to receive(:allocate).and_raise("late")
    descriptor = IO.sysopen(File::NULL, File::RDWR)
    expect { Fastrack::SpooledBody.call(descriptor) }.to raise_error("late")
    expect { IO.for_fd(descriptor) }.to raise_error(Errno::EBADF)
  end
end
