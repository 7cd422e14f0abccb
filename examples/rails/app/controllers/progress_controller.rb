# frozen_string_literal: true

# Streams its response from a thread of its own.
class ProgressController < ActionController::Base
  include ActionController::Live

  # Seconds to wait for the file, and between two checks.
  PATIENCE = 10
  STEP = 0.01

  def show
    response.headers["Content-Type"] = "text/plain"
    response.stream.write "waiting for #{awaited.basename}\n"
    (PATIENCE / STEP).to_i.times { awaited.exist? ? break : sleep(STEP) }
    response.stream.write "#{Note.count} notes\n"
  ensure
    response.stream.close
  end

  private

  def awaited
    Rails.root.join("tmp", File.basename(params[:file]))
  end
end
