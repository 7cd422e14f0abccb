# frozen_string_literal: true

require "support/http_helpers"

RSpec.describe "A15 the body of a response" do
  before(:context) { serve(HttpApps.ru(:responder)) }

  def body(name)
    server.get("/body/#{name}")
  end

  it "A15 may be an Array, whose length is told" do
    response = body("array")
    expect(response.body).to eq("onetwothree")
    expect(response.headers["Content-Length"]).to eq("11")
  end

  it "A15 may be an Array of any number of parts" do
    expect(body("many").body).to eq((0...5000).map { |index| "#{index}," }.join)
  end

  it "A15 may be frozen" do
    expect(body("frozen").body).to eq("ab")
  end

  it "A15 may be anything with each" do
    expect(body("each").body).to eq("onetwothree")
    expect(body("enumerator").body).to eq("enum")
  end

  it "A15 may use one buffer for all its parts" do
    expect(body("one-buffer").body).to eq("firstsecondthird")
  end

  it "A15 may be empty, in every way" do
    %w[empty blank each-empty each-blank].each do |name|
      response = body(name)
      expect(response.status).to eq(200)
      expect(response.body).to eq("")
      expect(response.headers["Content-Length"] || "0").to eq("0")
    end
  end

  it "A15 takes parts that are nil or Integers by their to_s" do
    expect(body("mixed-array").body).to eq("ContentAgain0")
    expect(body("mixed-array").headers["Content-Length"]).to eq("13")
    expect(body("each-mixed").body).to eq("ContentAgain0")
  end

  it "A15 sends bytes, whatever their encoding" do
    expect(body("binary").body).to eq((0..255).to_a.pack("C*"))
    expect(body("wide").body).to eq("\u00E9\u4E16".b << "x\0")
    expect(body("wide").headers["Content-Length"]).to eq("7")
  end

  it "A15 sends large bodies whole" do
    expect(body("large").body).to eq(("x" * 3_000_000) << ("y" * 3_000_000))
    expect(body("each-large").body).to eq("z" * 5_000_000)
  end

  it "A15 keeps the app's Content-Length" do
    response = HttpResponse.all(server.raw(message("HEAD /length/each HTTP/1.1", "Host: a", "Connection: close")), head_only: true).first
    expect(response.headers.all("Content-Length")).to eq(["10"])
  end

  it "B-app-error answers 500 for what is no body" do
    expect(body("string").status).to eq(500)
    expect_worker_alive
  end
end

RSpec.describe "A15 a body with to_path" do
  before(:context) do
    @folder = Dir.mktmpdir("fastrack-files")
    @content = Random.new(1).bytes(700_000)
    File.binwrite(File.join(@folder, "file.bin"), @content)
    File.binwrite(File.join(@folder, "empty.txt"), "")
    files = "defined?(Rack::Files) ? Rack::Files : Rack::File"
    serve(%(require "rack"\nrequire "rack/files"\nrun((#{files}).new(#{@folder.inspect}))))
  end

  after(:context) { FileUtils.remove_entry(@folder) }

  it "A15 sends the file of Rack::Files" do
    response = server.get("/file.bin")
    expect(response.body).to eq(@content)
    expect(response.headers["Content-Length"]).to eq("700000")
  end

  it "A15 sends an empty file, and ranges of one" do
    expect(server.get("/empty.txt").body).to eq("")
    response = server.get("/file.bin", { "Range" => "bytes=10-19" })
    expect(response.status).to eq(206)
    expect(response.body).to eq(@content.byteslice(10, 10))
  end

  it "A15 answers HEAD and a missing file as Rack::Files does" do
    response = talk("HEAD /file.bin HTTP/1.1", "Host: a")
    expect(response.headers["Content-Length"]).to eq("700000")
    expect(server.get("/no-such-file").status).to eq(404)
  end

  it "A15 leaves no file open" do
    5.times { server.get("/file.bin") }
    eventually { ProcessTable.descriptors(@worker).values.compact.none? { |name| name.start_with?(@folder) } }
  end
end
