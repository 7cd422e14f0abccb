# frozen_string_literal: true

# The profiles of support/profiles.rb on Sinatra.
require "connection_pool"
require "pg"
require "sinatra/base"
require_relative "profiles/data"

class ProfilesApp < Sinatra::Base
  # One connection for each thread of a worker, made when it is first needed.
  DATABASE = ConnectionPool.new(size: 5) do
    PG.connect.tap do |connection|
      connection.type_map_for_results = PG::BasicTypeMapForResults.new(connection)
      connection.prepare("items", "SELECT id, name, category, price, quantity, active, tags, rating_score, rating_count " \
                                  "FROM items WHERE price BETWEEN $1 AND $2 LIMIT $3")
    end
  end

  set :logging, false
  set :host_authorization, {}

  get "/pipeline" do
    plain "ok"
  end

  get "/baseline11" do
    plain (params["a"].to_i + params["b"].to_i).to_s
  end

  post "/baseline11" do
    plain (params["a"].to_i + params["b"].to_i + request.body.read.to_i).to_s
  end

  get "/json/:count" do
    content_type :json
    ProfileData.json(params["count"].to_i, params.fetch("m", 1).to_i)
  end

  get "/async-db" do
    values = [params.fetch("min", 10).to_i, params.fetch("max", 50).to_i, params.fetch("limit", 50).to_i.clamp(1, 50)]
    rows = DATABASE.with { |connection| connection.exec_prepared("items", values).to_a }
    content_type :json
    ProfileData.items_json(rows)
  end

  private

  def plain(text)
    content_type "text/plain"
    text
  end
end

use Rack::Static, urls: ["/static"], root: ProfileData.write_files, gzip: true
use Rack::Deflater, include: %w[application/json]
run ProfilesApp
