# frozen_string_literal: true

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
