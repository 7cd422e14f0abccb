# frozen_string_literal: true

require "zlib"
require_relative "fronts"

module Bench
  # The servers of a page with 20 assets: the proxy before Fastrack; nginx and Caddy before Puma; Puma alone, whose app sends the files.
  # Browsers may keep the files for a year. Style sheets and scripts have a .gz beside them, as Sprockets makes them.
  class PageFront < TlsFront
    CACHE = "public, max-age=31536000, immutable"
    ASSETS = [*Array.new(3) { |nr| "style#{nr}.css" }, *Array.new(5) { |nr| "script#{nr}.js" }, *Array.new(12) { |nr| "image#{nr}.png" }].freeze
    FILES = {}.freeze
    # Puma's default.
    PUMA_THREADS = "0:5"
    # Pixels of a picture's side: 12 KB.
    SIDE = 64
    APP = <<~RUBY
      use Rack::Static, urls: ["/files"], root: File.join(__dir__, "public"), gzip: true, header_rules: [[:all, { "cache-control" => "#{CACHE}" }]]
      page = File.read(File.join(__dir__, "page.html"))
      run ->(env) { [200, { "content-type" => "text/html" }, [page]] }
    RUBY
    # Tells the port in its query when all is loaded, and what the browser says of it.
    REPORT = <<~'HTML'
      <script>
        addEventListener("load", () => setTimeout(() => {
          const [page] = performance.getEntriesByType("navigation"), files = performance.getEntriesByType("resource");
          const fetched = files.filter((file) => file.transferSize > 0).length;
          location.href = `http://127.0.0.1:${location.search.slice(1)}/${page.loadEventEnd},${files.length},${fetched},${page.nextHopProtocol}`;
        }));
      </script>
    HTML

    # Writes the page and its assets, too.
    def self.prepare(dir)
      super
      random = Random.new(1)
      ASSETS.each do |name|
        bytes = text(name, random)
        File.binwrite("#{dir}/public/files/#{name}", bytes)
        File.binwrite("#{dir}/public/files/#{name}.gz", Zlib.gzip(bytes)) unless name.end_with?(".png")
      end
      File.write("#{dir}/page.html", page)
    end

    def self.text(name, random)
      words = ->(count) { Array.new(count) { Array.new(6) { random.rand(97..122).chr }.join } }
      case File.extname(name)
      when ".css" then words[400].map { |word| ".#{word} { margin: #{random.rand(99)}px; color: ##{format("%06x", random.rand(1 << 24))} }\n" }.join
      when ".js" then "(() => { const words = #{words[4_000].inspect}; document.documentElement.dataset.#{name[/\w+/]} = words.sort().length })()\n"
      else png(random)
      end
    end

    # @see https://www.w3.org/TR/png-3/ W3C Portable Network Graphics, 5.3 and 11
    def self.png(random)
      chunk = ->(type, data) { [data.bytesize, type, data, Zlib.crc32(type + data)].pack("Na*a*N") }
      rows = Array.new(SIDE) { "\0".b + random.bytes(SIDE * 3) }.join
      "\x89PNG\r\n\x1A\n".b + chunk["IHDR", [SIDE, SIDE, 8, 2, 0, 0, 0].pack("NNC5")] + chunk["IDAT", Zlib.deflate(rows)] + chunk["IEND", ""]
    end

    def self.page
      tags = ASSETS.map do |name|
        case File.extname(name)
        when ".css" then %(<link rel="stylesheet" href="/files/#{name}">)
        when ".js" then %(<script src="/files/#{name}" defer></script>)
        else %(<img src="/files/#{name}" width="#{SIDE}" height="#{SIDE}" alt="">)
        end
      end
      %(<!DOCTYPE html><html><head><meta charset="utf-8"><title>A page</title><link rel="icon" href="data:,">#{REPORT}</head><body>#{tags.join("\n")}</body></html>)
    end
    private_class_method :text, :png, :page

    private

    def fastrack_files = ["-O", "CacheControl=/files/* #{CACHE}"]
    def nginx_files = %(gzip_static on; add_header Cache-Control "#{CACHE}";)
    def caddy_files = "header Cache-Control \"#{CACHE}\"\nfile_server {\nprecompressed gzip\n}"
    def app_at(address) = puma_at(address)
  end
end
