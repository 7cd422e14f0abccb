# frozen_string_literal: true

require "tempfile"

# An app with the heap of a large Rails app: two million live objects, and about 1 MB of garbage per request. A twentieth of
# what a request makes is kept for the next 500, as caches do, so that objects grow old before they die.
#
# The garbage collector's work, in requests and outside, goes to a file that all workers share; /gc prints it.
live = Array.new(500_000) { |number| [number.to_s, [number], "record #{number}"] }
recent = Array.new(500)
file = Tempfile.new("fastrack-bench").tap(&:unlink)
names = %i[requests collected full in_requests_ns collections full_marks ns]
counts = [0] * 4
record = 64

sums = lambda do
  size = file.size - (file.size % record)
  records = size.zero? ? [] : file.pread(size, 0).unpack("q*").each_slice(record / 8).reject { |one| one.last.zero? }
  names.each_with_index.map { |name, index| "\"#{name}\":#{records.sum { |one| one[index] }}" }
end

run(lambda do |env|
  if env["PATH_INFO"] == "/gc"
    body = "{#{sums.call.join(",")}}"
    next [200, { "content-type" => "application/json", "content-length" => body.bytesize.to_s }, [body]]
  end

  before = [GC.count, GC.stat(:major_gc_count), GC.total_time]
  rows = Array.new(1_800) { |index| { id: index, name: "row #{index}", price: index * 1.1 } }
  page = rows.map { |row| "<tr><td>#{row[:id]}</td><td>#{row[:name]}</td><td>#{row[:price]}</td></tr>\n" }.join
  # An array of its own: that of `first` would keep all of them.
  recent[counts[0] % recent.size] = Array.new(90) { |index| rows[index] }
  after = [GC.count, GC.stat(:major_gc_count), GC.total_time]
  changes = after.zip(before).map { |now, then_| now - then_ }
  counts = [counts[0] + 1, counts[1] + changes[0].clamp(0, 1), counts[2] + changes[1].clamp(0, 1), counts[3] + changes[2]]
  file.pwrite([*counts, *after, Process.pid].pack("q*"), (Process.pid % 4_096) * record)
  body = "#{page.bytesize} bytes made, #{live.size} records live\n"
  [200, { "content-type" => "text/plain", "content-length" => body.bytesize.to_s }, [body]]
end)
