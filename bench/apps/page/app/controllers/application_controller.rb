# frozen_string_literal: true

# Its name is where Rails finds the layout.
class ApplicationController < ActionController::Base
end
