# frozen_string_literal: true

# The profiles of support/profiles.rb on Rails.
require_relative "profiles_data"
require_relative "bench_rails"

BenchRails.config.tap do |config|
  config.api_only = true
  config.public_file_server.enabled = true
  config.paths["public"] = ProfileData.write_files
  config.middleware.use Rack::Deflater, include: %w[application/json]
end
BenchRails.initialize!
BenchRails.routes.draw do
  get "pipeline", to: "profiles#pipeline"
  get "baseline11", to: "profiles#baseline"
  post "baseline11", to: "profiles#baseline"
  get "json/:count", to: "profiles#items"
  get "async-db", to: "profiles#rows"
end

class Item < ActiveRecord::Base
end

class ProfilesController < ActionController::API
  def pipeline
    render plain: "ok"
  end

  def baseline
    sum = params[:a].to_i + params[:b].to_i
    sum += request.body.read.to_i if request.post?
    render plain: sum.to_s
  end

  def items
    render json: ProfileData.json(params[:count].to_i, params.fetch(:m, 1).to_i)
  end

  def rows
    prices = params.fetch(:min, 10).to_i..params.fetch(:max, 50).to_i
    rows = Item.where(price: prices).limit(params.fetch(:limit, 50).to_i.clamp(1, 50))
    render json: ProfileData.items_json(rows.map(&:attributes))
  end
end

run BenchRails
