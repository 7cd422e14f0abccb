# frozen_string_literal: true

# An app that gives the garbage collector work, as a Rails app does: a big live heap, requests that make many objects
# (here ~50,000 in ~10 ms), and results that are kept for a while, so that they grow old before they die: full marks
# come, and are long. They are what a p99 shows.
live = Array.new(200_000) { |index| { id: index, name: "record #{index}" } }
recent = Array.new(25)
requests = 0

run(lambda do |_env|
  rows = Array.new(8_000) { |index| { id: index, name: "row #{index}", price: index * 1.1 } }
  page = rows.map { |row| "<tr><td>#{row[:id]}</td><td>#{row[:name]}</td><td>#{row[:price]}</td></tr>\n" }.join
  recent[requests % recent.size] = rows
  requests += 1
  body = "#{page.bytesize} bytes made, #{live.size} records live\n"
  [200, { "content-type" => "text/plain", "content-length" => body.bytesize.to_s }, [body]]
end)
