# frozen_string_literal: true

Rails.application.routes.draw do
  get "pipeline", to: "profiles#pipeline"
  get "baseline11", to: "profiles#baseline"
  post "baseline11", to: "profiles#baseline"
  get "json/:count", to: "profiles#items"
  get "async-db", to: "profiles#rows"
end
