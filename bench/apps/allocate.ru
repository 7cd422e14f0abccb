# frozen_string_literal: true

# An app that gives the garbage collector work, as a large Rails app does: a big live heap, which
# makes every full mark long, and requests whose objects stay for a while, which makes full marks
# come. They are what a p99 shows.
live = Array.new(200_000) { |index| { id: index, name: "record #{index}" } }
recent = Array.new(400)
requests = 0

run(lambda do |_env|
  rows = Array.new(2_000) { |index| ["row", "value #{index}"] }
  recent[requests % recent.size] = rows
  requests += 1
  body = "#{live.size} live, #{rows.size} rows\n"
  [200, { "content-type" => "text/plain", "content-length" => body.bytesize.to_s }, [body]]
end)
