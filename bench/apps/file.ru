# frozen_string_literal: true

require "tempfile"
require "rack"

# A file of 10 MB, as Rack's own middleware gives it: by a body with to_path.
file = Tempfile.new("fastrack-bench").tap { |one| one.write("x" * 10_000_000) && one.flush }
files = Rack::Files.new(File.dirname(file.path))
file_name = "/#{File.basename(file.path)}"

run ->(env) { files.call(env.merge("PATH_INFO" => file_name)) }
