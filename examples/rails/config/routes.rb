# frozen_string_literal: true

Rails.application.routes.draw do
  root "notes#index"
  resources :notes, only: %i[index create]
  get "old", to: redirect("/notes", status: 301)
  get "source", to: "notes#source"
  get "connection", to: "connections#show"
  get "progress", to: "progress#show"
end
