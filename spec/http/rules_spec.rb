# frozen_string_literal: true

require "support/http_rules"

# The rules of crates/http/src/rules.md over a real socket. The crate's own tests cut each example everywhere; here the
# two pieces are two packets, which the server reads one after the other.
RSpec.describe "B-framing the rules of the parser", once: "bytes on the wire" do
  before(:context) { serve(HttpApps.ru(:echo)) }

  # What the app sees of a request, by the names that the examples use.
  seen_by_app = lambda do |response|
    echoed = HttpApps::Echo.read(response)
    env = echoed.fetch("env")
    keys = { "method" => "REQUEST_METHOD", "uri" => "REQUEST_URI", "path" => "PATH_INFO", "query" => "QUERY_STRING", "host" => "HTTP_HOST", "x" => "HTTP_X" }
    # Before Rack 3.1 the path of `OPTIONS *` is empty: Rack::Lint refuses the asterisk.
    env["PATH_INFO"] = "*" if env.values_at("PATH_INFO", "REQUEST_URI") == ["", "*"]
    keys.transform_values { |key| env[key] }.merge("body" => echoed.fetch("body"))
  end

  # After the first bytes, in the middle of a line, around the end of the head, before the last byte.
  places = lambda do |bytes|
    head = bytes.index("\r\n\r\n") || bytes.bytesize
    [1, bytes.index("\r\n").to_i + 1, bytes.bytesize / 2, head + 1, head + 2, head + 3, bytes.bytesize - 1]
      .select { |place| place.between?(1, bytes.bytesize - 1) }.uniq
  end

  # Sends bytes in one packet, or in two; whoever is served in between comes after the first was read.
  def exchange(bytes, cut = 0)
    HttpPeer.open(server) do |peer|
      peer.write(bytes.byteslice(0, cut)) && server.get("/between") if cut.positive?
      peer.write(bytes.byteslice(cut..))
      finish(peer)
    end
  end

  # An example may stop where it has been refused, but never where it is still unfinished: the server answers by itself.
  def finish(peer)
    peer.read_until(%r{^HTTP/1\.[01] [2-5]\d\d })
    peer.finish_sending
    peer.read_to_end
  end

  examples = HttpRules.examples
  examples.group_by(&:rule).each do |rule, group|
    it "B-framing #{rule}: #{group.map(&:status).uniq.sort.join(" or ")}, however its examples are cut" do
      group.each do |example|
        before = journal.lines.grep_v(/between/).size
        answers = [exchange(example.bytes), *places.call(example.bytes).map { |cut| exchange(example.bytes, cut) }]
        responses = answers.map { |wire| HttpResponse.parse(wire) }
        expect(responses.map(&:status)).to all(eq(example.status)), example.bytes[0, 200].inspect
        if example.status == 200
          expect(responses.map(&seen_by_app)).to all(include(example.seen)), example.bytes[0, 200].inspect
        else
          expect(journal.lines.grep_v(/between/).size).to eq(before)
          expect(responses.map { |response| response.headers["Connection"] }).to all(eq("close"))
        end
      end
    end
  end

  it "B-framing reads the examples of all rules" do
    table = File.read(File.expand_path("../../crates/http/src/rules.md", __dir__), encoding: "UTF-8")
    expect(examples.map(&:rule).uniq).to match_array(table.scan(/^\| `([\w-]+)` \|/).flatten)
  end
end
