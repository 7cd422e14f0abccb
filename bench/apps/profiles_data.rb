# frozen_string_literal: true

require "fileutils"
require "json"
require "zlib"

# The data of the profiles' apps: items, and files like those of a web page.
module ProfileData
  COUNT = 50
  ITEMS = Array.new(COUNT) do |n|
    { id: n + 1, name: "Item #{n + 1}", category: "category #{n % 9}", price: 10 + (n * 37 % 400), quantity: 1 + (n * 13 % 60),
      active: n.even?, tags: ["tag #{n % 5}", "tag #{n % 11}"], rating: { score: 1 + (n * 31 % 50), count: n * 17 % 300 } }.freeze
  end.freeze

  # KB of each file by its ending; text is there compressed, too.
  SIZES = { "css" => [8, 18, 25, 60, 200], "js" => [12, 22, 35, 200, 300], "html" => [55, 120], "svg" => [15, 70], "json" => [3],
            "woff2" => [18, 22], "webp" => [6, 8, 45] }.freeze
  TEXT = %w[css js html svg json].freeze
  FILES = SIZES.flat_map { |ending, sizes| sizes.map { |size| ["#{size}.#{ending}", size * 1024] } }.to_h.freeze

  module_function

  def json(count, factor)
    items = ITEMS.first(count).map { |item| item.merge(total: item[:price] * item[:quantity] * factor) }
    JSON.generate(items: items, count: items.size)
  end

  # @param rows [Enumerable<Hash>] of the table items, with names as Strings
  def items_json(rows)
    items = rows.map do |row|
      row.slice("id", "name", "category", "price", "quantity", "active").merge(
        "tags" => row["tags"], "rating" => { "score" => row["rating_score"], "count" => row["rating_count"] }
      )
    end
    JSON.generate(items: items, count: items.size)
  end

  # @return [String] always the same bytes for a name; text that compresses to a quarter, or bytes that do not compress
  def content(name)
    size = FILES.fetch(name)
    random = Random.new(size)
    return random.bytes(size) unless TEXT.include?(name[/\w+\z/])

    words = Array.new(400) { random.rand(36**7).to_s(36) }
    text = +""
    text << words[random.rand(400)] << " { width: " << random.rand(90).to_s << "px }\n" while text.bytesize < size
    text.byteslice(0, size)
  end

  # @return [String] a directory with the files in a folder `static`
  def write_files(dir = File.join(ENV.fetch("BENCH_DIR"), "public"))
    FileUtils.mkdir_p(File.join(dir, "static"))
    FILES.each_key do |name|
      path = File.join(dir, "static", name)
      File.binwrite(path, content(name))
      Zlib::GzipWriter.open("#{path}.gz", 9) { |gz| gz.write(content(name)) } if TEXT.include?(name[/\w+\z/])
    end
    dir
  end
end
