# frozen_string_literal: true

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
