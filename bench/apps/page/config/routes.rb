# frozen_string_literal: true

Rails.application.routes.draw do
  root "posts#index"
  get "wait", to: "posts#wait"
end
