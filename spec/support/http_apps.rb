# frozen_string_literal: true

# The apps that the HTTP and Rack specs serve, each a class in its own file under http_apps/.
module HttpApps
  FOLDER = File.expand_path("http_apps", __dir__)

  # The text of a config.ru that serves an app of that folder.
  def self.ru(name, middleware: [])
    constant = name.to_s.split("_").map(&:capitalize).join
    uses = middleware.map { |one| "use #{one}\n" }.join
    "require #{File.join(FOLDER, name.to_s).inspect}\n#{uses}run HttpApps::#{constant}.new\n"
  end

  # Whether the Rack here is one whose SPEC has callable bodies, arrays of header values and to_ary.
  def self.rack3?
    require "rack"
    Rack.release.to_i >= 3
  end

  # Whether its SPEC has `*` as a PATH_INFO.
  def self.rack31? = rack3? && Gem::Version.new(Rack.release) >= Gem::Version.new("3.1")
end
