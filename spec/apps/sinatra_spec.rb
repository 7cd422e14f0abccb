# frozen_string_literal: true

require "securerandom"
require_relative "../support/app_browser"

SINATRA_MISSING = AppRequirements.missing("Sinatra 4", 'require "sinatra/base"; exit Sinatra::VERSION.to_i >= 4')

RSpec.describe "A Sinatra app", skip: SINATRA_MISSING do
  before(:context) do
    example = File.read(File.join(Server::ROOT, "examples/sinatra/config.ru"))
    @server = Server.start(ru: example, options: { MaxWorkers: 3 })
    @server.await_workers(3)
  end

  before { @visitor = AppBrowser.new(@server) }

  after { @visitor.close }

  def retire(pid)
    Process.kill(:TERM, pid)
    eventually { !ProcessTable.alive?(pid) && @server.workers.size == 3 }
  end

  it "keeps a session in a cookie, whichever worker answers, one that was just spawned too" do
    pids = (1..4).map do |visit|
      page = @visitor.visit("/")
      expect(page.body).to include("Visit #{visit},")
      # It is replaced, so that the next visit gets to another.
      page.body[/worker (\d+)/, 1].to_i.tap { |pid| retire(pid) }
    end
    expect(pids.uniq.size).to eq(4)
  end

  it "takes a form and redirects (303) to the page that shows it" do
    token = @visitor.visit("/").token
    text = "Käse & <b>50 %</b> + 1=2;\r\nnext line"
    answer = @visitor.submit("/notes", authenticity_token: token, text: text)
    expect([answer.status, answer.headers["Location"]]).to eq([303, @server.url("/")])
    expect(answer.body).to be_empty
    page = @visitor.submit("/notes", { authenticity_token: token, text: "second" }, "--location")
    expect(page.status).to eq(200)
    expect(page.body.force_encoding("UTF-8")).to include("<li>Käse &amp; &lt;b&gt;50 %&lt;/b&gt; + 1=2;\r\nnext line</li><li>second</li>")
  end

  # The limits of memory and temporary file (A12), and of what curl sends without asking first (A13).
  chunked = ["--header", "Transfer-Encoding: chunked"]
  { "an empty file" => [0], "a small file" => [2_000], "1 MiB" => [1 << 20], "5 MB" => [5_000_000], "3 MB in chunks" => [3_000_000, *chunked] }.each do |what, (size, *arguments)|
    it "takes an upload of #{what}" do
      content = SecureRandom.random_bytes(size)
      answer = @visitor.upload("/files", { authenticity_token: @visitor.visit("/").token }, "file", @visitor.write("photo.bin", content), *arguments)
      expect(answer.status).to eq(200), answer.body
      expect(answer.body).to start_with("photo.bin #{size} #{Digest::SHA256.hexdigest(content)} by ")
    end
  end
end
