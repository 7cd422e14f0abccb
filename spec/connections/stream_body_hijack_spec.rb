# frozen_string_literal: true

require_relative "../support/http_apps/body_hijacking"

RSpec.describe "C5 hijacking with StreamBody" do
  framings = {
    "Content-Length: 8" => ["abc", "defgh"],
    "Transfer-Encoding: chunked" => ["3\r\nabc\r\n5\r\nd", "efgh\r\n0\r\n\r\n"]
  }

  def serve_hijacking(options = {})
    serve(HttpApps.ru(:body_hijacking), options: { "StreamBody" => true }.merge(options))
  end

  # What the app says, once the client has sent the rest and something that follows the body.
  def conversation(one, rest)
    one.write("#{rest}at once").read_until(/\|/)
    one.write(" and later").finish_sending
    one.read_to_end.split("\r\n\r\n").last
  end

  framings.each do |framing, (first, second)|
    context "with #{framing}" do
      before(:context) { serve_hijacking }

      it "C5 the body stays to be read after the connection was taken over, and the socket begins after it" do
        expect(conversation(begun("/full", framing, part: first), second)).to eq("abcdefgh|AT ONCE AND LATER")
        expect_worker_alive
      end

      it "C5 a part of the body may have been read before, or all of it" do
        [3, 2, 8].each do |size|
          expect(conversation(begun("/full/#{size}", framing, part: first), second)).to eq("abcdefgh|AT ONCE AND LATER")
        end
      end

      it "C5 a body that nobody reads does not get into the conversation" do
        expect(conversation(begun("/unread", framing, part: first), second)).to eq("|AT ONCE AND LATER")
      end

      it "C5 partial: the head leaves when the body has come, and the socket begins after it" do
        one = begun("/partial", framing, part: first)
        expect([one.anything_within?(0.1), conversation(one, second)]).to eq([false, "abcdefgh|AT ONCE AND LATER"])
        expect(one.received).to start_with("HTTP/1.1 200 OK\r\n")
        two = begun("/switch", framing, "Connection: Upgrade", "Upgrade: echo", part: first)
        expect(conversation(two, second)).to eq("abcdefgh|AT ONCE AND LATER")
        expect(two.received).to start_with("HTTP/1.1 101 Switching Protocols\r\n")
      end

      it "C5 a client that goes meanwhile raises EOFError, and hears nothing" do
        one = begun("/failing", framing, part: first).finish_sending
        expect(one).to be_closed_without_a_word
        expect(journal.lines).to include("EOFError the client has gone before the end of the body")
        expect_worker_alive
      end

      it "C5 a streaming body answers while the request's body comes in", skip: ("callable bodies are Rack 3's" unless HttpApps.rack3?) do
        lines = framing.start_with?("T") ? ["4\r\none\n\r\n", "4\r\ntwo\n\r\n0\r\n\r\n"] : ["one\n", "two\n"]
        one = begun("/streaming", framing)
        one.read_until(/begun\n/)
        one.write(lines[0]).read_until(/ONE\n/)
        one.write(lines[1])
        expect([one.read_to_end[/begun.*/m], one.ending]).to eq(["begun\nONE\nTWO\n", :closed])
        expect_worker_alive
      end
    end
  end

  it "C5 a client that waits to be asked for the body is asked" do
    serve_hijacking
    one = begun("/full", "Expect: 100-continue", "Content-Length: 8")
    one.read_until(%r{\AHTTP/1.1 100 Continue\r\n\r\n\z})
    expect(conversation(one, "abcdefgh")).to eq("abcdefgh|AT ONCE AND LATER")
  end

  it "C5 more than a mebibyte that has not been read raises IOError; once it has been, there is no limit" do
    serve_hijacking
    one = begun("/failing", "Content-Length: 3000000", part: "abc")
    one.write("x" * 2_999_997)
    expect(one.answer.status).to eq(500)
    expect(journal.lines).to include("IOError the body must be read before the connection is taken over")
    two = begun("/full/2000000", "Content-Length: 3000000", part: "x")
    two.write("x" * 2_999_999)
    expect(conversation(two, "").size).to eq(3_000_000 + "|AT ONCE AND LATER".size)
  end
end
