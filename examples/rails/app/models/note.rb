# frozen_string_literal: true

# A line of text that somebody has left.
class Note < ActiveRecord::Base
  validates :text, presence: true
end
