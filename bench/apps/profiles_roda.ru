# frozen_string_literal: true

# The profiles of support/profiles.rb on Roda.
require "connection_pool"
require "pg"
require "rack"
require "roda"
require_relative "profiles_data"

class ProfilesApp < Roda
  # One connection for each thread of a worker, made when it is first needed.
  DATABASE = ConnectionPool.new(size: 4) do
    PG.connect.tap do |connection|
      connection.type_map_for_results = PG::BasicTypeMapForResults.new(connection)
      connection.prepare("items", "SELECT id, name, category, price, quantity, active, tags, rating_score, rating_count " \
                                  "FROM items WHERE price BETWEEN $1 AND $2 LIMIT $3")
    end
  end

  plugin :public, root: ProfileData.write_files, gzip: true
  plugin :plain_hash_response_headers
  plugin :default_headers, "content-type" => "text/plain"

  route do |r|
    r.public

    r.is("pipeline") { "ok" }

    r.is "baseline11" do
      sum = r.params["a"].to_i + r.params["b"].to_i
      sum += r.body.read.to_i if r.post?
      sum.to_s
    end

    r.is "json", Integer do |count|
      json ProfileData.json(count, r.params.fetch("m", 1).to_i)
    end

    r.is "async-db" do
      values = [r.params.fetch("min", 10).to_i, r.params.fetch("max", 50).to_i, r.params.fetch("limit", 50).to_i.clamp(1, 50)]
      json ProfileData.items_json(DATABASE.with { |connection| connection.exec_prepared("items", values).to_a })
    end
  end

  private

  def json(text)
    response["content-type"] = "application/json"
    text
  end
end

use Rack::Deflater, include: %w[application/json]
run ProfilesApp.freeze.app
