# frozen_string_literal: true

# A page of 50 posts on Rails, with Active Record and Action View; /wait is the same page after a query that waits for 20 ms.
require_relative "bench_rails"

BenchRails.config.paths["app/views"] = "page/views"
BenchRails.initialize!
BenchRails.routes.draw do
  root "posts#index"
  get "wait", to: "posts#wait"
end

class Post < ActiveRecord::Base
  scope :latest, -> { order(id: :desc).limit(50) }
end

# Its name is where Rails finds the layout.
class ApplicationController < ActionController::Base
end

class PostsController < ApplicationController
  def index
    @posts = Post.latest
  end

  def wait
    Post.connection.select_value("SELECT 1 FROM pg_sleep(0.02)")
    index
    render :index
  end
end

run BenchRails
