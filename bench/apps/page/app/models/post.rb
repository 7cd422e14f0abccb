# frozen_string_literal: true

class Post < ActiveRecord::Base
  scope :latest, -> { order(id: :desc).limit(50) }
end
