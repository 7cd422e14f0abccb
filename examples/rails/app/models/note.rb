# frozen_string_literal: true

# A line of text.
class Note < ActiveRecord::Base
  validates :text, presence: true
end
