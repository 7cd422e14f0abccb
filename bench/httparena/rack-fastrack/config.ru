# frozen_string_literal: true

# An entry for HttpArena (https://www.http-arena.com): its HTTP/1.1 profiles on plain Rack.
require "json"

# The benchmark mounts the data set there.
ITEMS = JSON.parse(File.read(ENV.fetch("DATASET", "/data/dataset.json"))).freeze
TEXT = { "content-type" => "text/plain" }.freeze
JSON_TYPE = { "content-type" => "application/json" }.freeze

# Serves the benchmark's endpoints.
class Arena
  def call(env)
    case env["PATH_INFO"]
    when "/pipeline" then text("ok")
    when "/baseline11", "/baseline2" then text(sum(env).to_s)
    when "/echo" then [200, { "content-type" => "application/octet-stream" }, [env["rack.input"].read]]
    when %r{\A/json/(\d+)\z} then json(Regexp.last_match(1).to_i, query(env).fetch("m", 1).to_i)
    else [404, TEXT.dup, ["not found"]]
    end
  end

  private

  def text(body) = [200, TEXT.dup, [body]]

  def query(env) = Rack::Utils.parse_query(env["QUERY_STRING"])

  def sum(env)
    numbers = query(env).values_at("a", "b").sum(&:to_i)
    env["REQUEST_METHOD"] == "POST" ? numbers + env["rack.input"].read.to_i : numbers
  end

  def json(count, factor)
    items = ITEMS.first(count).map { |item| item.merge("total" => item["price"] * item["quantity"] * factor) }
    [200, JSON_TYPE.dup, [JSON.generate("items" => items, "count" => items.size)]]
  end
end

use Rack::Deflater, if: ->(env, *) { env["PATH_INFO"].start_with?("/json/") }
run Arena.new
