# frozen_string_literal: true

# Puma 5 to 8 and Unicorn 6 freeze of the request's strings only those that most requests have in common.
RSpec.describe "C5 the strings of env" do
  strings = %w[REQUEST_METHOD REQUEST_URI PATH_INFO QUERY_STRING SERVER_NAME SERVER_PORT REMOTE_ADDR HTTP_HOST HTTP_X_OTHER]

  before(:context) do
    serve(<<~RUBY)
      run(lambda do |env|
        seen = env.values_at(*%w[#{strings.join(" ")}]).map(&:dup)
        frozen = env.select { |key, value| value.is_a?(String) && value.frozen? }.keys
        env.each_value { |value| value << "changed" if value.is_a?(String) && !value.frozen? } if env["QUERY_STRING"] == "change"
        [200, {}, [[*seen, *frozen].join("\\n")]]
      end)
    RUBY
  end

  [["GET", "example.org:81", %w[example.org 81]], ["POST", "example.org", %w[example.org 80]]].each do |verb, host, names|
    it "C5 can be changed where Puma's and Unicorn's can, and no other request sees it (#{verb}, Host: #{host})" do
      lines = %w[change change none].flat_map { |query| ["#{verb} /a?#{query} HTTP/1.1", "Host: #{host}", "X-Other: b", "Content-Length: 0", ""] }
      answers = HttpPeer.open(server) do |peer|
        peer.write("#{lines.join("\r\n")}\r\n#{message("GET / HTTP/1.1", "Host: a", "Connection: close")}")
        HttpResponse.all(peer.read_to_end).first(3).map { |response| response.body.lines(chomp: true) }
      end
      seen = %w[change change none].map { |query| [verb, "/a?#{query}", "/a", query, *names, "127.0.0.1", host, "b"] }
      expect(answers.map { |answer| answer.first(strings.size) }).to eq(seen)
      frozen = answers.map { |answer| answer.drop(strings.size) & strings }
      # The port of http is one for all.
      expect(frozen).to all(eq(names.last == "80" ? ["SERVER_PORT"] : []))
    end
  end

  it "C5 has SERVER_SOFTWARE" do
    server = Server.start(ru: Rackups::ENV_LINES, options: { MaxWorkers: 1 })
    expect(server.get("/").body[/^SERVER_SOFTWARE="(.*)"$/, 1]).to match(%r{\AFastrack/\d+\.\d+\.\d+\S*\z})
  end
end
