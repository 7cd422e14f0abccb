# frozen_string_literal: true

require_relative "app_rails"

# Adds a controller whose responses have bodies of all kinds, and Active Storage on a local disk, to the copy of the example.
class AppRailsBodies
  LINES = "one\ntwo\nthree\n"

  CONTROLLER = <<~'RUBY'
    # frozen_string_literal: true

    class BodiesController < ActionController::Base
      LINES = %W[one\n two\n three\n].freeze

      # A body of the app's own.
      class Own
        def each = LINES.each { |line| yield line }
      end

      # As streams have it, so that Rack::ETag does not read them.
      before_action { response.headers["Last-Modified"] = Time.now.httpdate }

      def array = self.response_body = LINES.dup
      def enumerator = self.response_body = LINES.each
      def lazy = self.response_body = LINES.lazy.map(&:itself)
      def own = self.response_body = Own.new
      def data = send_data(LINES.join, filename: "lines.txt")

      def sized
        response.headers["Content-Length"] = LINES.join.bytesize.to_s
        self.response_body = LINES.each
      end

      def generated
        self.response_body = Enumerator.new do |lines|
          lines << LINES.first
          sleep 0.01 until params[:file].nil? || Rails.root.join("tmp", File.basename(params[:file])).exist?
          lines << (Note.count >= 0 ? LINES[1] : "") << LINES.last
        end
      end

      def path = send_file(Rails.root.join("tmp/lines.txt"))

      def attach
        blob = ActiveStorage::Blob.create_and_upload!(io: File.open(Rails.root.join("tmp/video"), "rb"), filename: "video.mp4", content_type: "video/mp4")
        render json: { proxy: rails_storage_proxy_path(blob), redirect: rails_storage_redirect_path(blob) }
      end
    end
  RUBY

  LIVE = <<~'RUBY'
    # frozen_string_literal: true

    class LiveBodiesController < ActionController::Base
      include ActionController::Live

      def streamed
        send_stream(filename: "lines.txt") { |stream| BodiesController::LINES.each { |line| stream.write(line) } }
      end
    end
  RUBY

  ROUTES = <<~'RUBY'
    Rails.application.routes.append do
      get "bodies/streamed", to: "live_bodies#streamed"
      get "bodies/:action", controller: "bodies"
    end
  RUBY

  TABLE = <<~'RUBY'

    ActiveRecord::Schema[7.1].define do
      create_table :active_storage_blobs, if_not_exists: true do |t|
        t.string :key, :filename, null: false
        t.string :content_type, :checksum
        t.text :metadata
        t.string :service_name, null: false
        t.bigint :byte_size, null: false
        t.datetime :created_at, null: false
      end
    end
  RUBY

  # @param app [AppRails]
  # @param video [String] what /bodies/attach stores
  def self.add(app, video)
    application = app.path("config/application.rb")
    text = File.read(application).sub(/^require "action_cable\/engine"$/, "\\0\nrequire \"active_storage/engine\"")
    File.write(application, text.sub(/^  config\.load_defaults .*$/, "\\0\n  config.active_storage.service = :local"))
    File.write(app.path("config/storage.yml"), "local:\n  service: Disk\n  root: <%= Rails.root.join(\"tmp/storage\") %>\n")
    File.write(app.path("app/controllers/bodies_controller.rb"), CONTROLLER)
    File.write(app.path("app/controllers/live_bodies_controller.rb"), LIVE)
    FileUtils.mkdir_p(app.path("config/initializers"))
    File.write(app.path("config/initializers/bodies.rb"), ROUTES)
    File.write(app.path("config/environment.rb"), TABLE, mode: "a")
    File.write(app.path("tmp/lines.txt"), LINES)
    File.binwrite(app.path("tmp/video"), video)
  end
end
