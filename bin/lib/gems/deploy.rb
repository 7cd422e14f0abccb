# frozen_string_literal: true

# Deploys the app of examples/heroku with a platform's gem as Heroku's buildpack does: deploy.rb GEM EXAMPLE
#
# `bundle install` with BUNDLE_DEPLOYMENT, from vendor/cache, because there is no network; then the Procfile's command with PORT and
# WEB_CONCURRENCY. The system has Ruby, Bundler and Rack, and nothing to compile with (smoke.rb sees to that).

require "fileutils"
require "io/wait"
require "net/http"
require "rubygems/package"
require "socket"
require "tmpdir"

SECONDS = 60
# As the buildpack sets them.
SETTINGS = { "BUNDLE_DEPLOYMENT" => "1", "BUNDLE_PATH" => "vendor/bundle", "BUNDLE_WITHOUT" => "development:test" }.freeze
CLEAN = { "RUBYOPT" => nil, "RUBYLIB" => nil, "BUNDLE_GEMFILE" => nil, "GEM_HOME" => nil, "GEM_PATH" => nil, "LANG" => "C.UTF-8" }.freeze

def bundle(dir, more, *words)
  output = IO.popen([CLEAN.merge("HOME" => dir, **more), "bundle", *words, { chdir: dir, in: File::NULL, err: %i[child out] }], &:read)
  $?.success? ? output : abort("deploy: bundle #{words.join(" ")} failed:\n#{output}")
end

# Puts what `bundle package` leaves into vendor/cache: this gem, and Rack as the system has it.
def vendor(dir, package)
  FileUtils.mkdir_p(cache = "#{dir}/vendor/cache")
  FileUtils.cp(package, cache)
  lib = File.dirname(Gem.find_files("rack.rb").first)
  Dir.mktmpdir do |stage|
    FileUtils.mkdir("#{stage}/lib")
    FileUtils.cp_r(["#{lib}/rack.rb", "#{lib}/rack"], "#{stage}/lib")
    Dir.chdir(stage) do
      rack = Gem::Specification.new("rack", Gem::Specification.find_by_name("rack").version) do |spec|
        spec.authors, spec.summary, spec.files = ["Rack's authors"], "Rack", Dir.glob("lib/**/*.rb")
      end
      Gem::Package.build(rack, true, false, "#{cache}/#{rack.file_name}")
    end
  end
end

# First as a developer, for the Gemfile.lock; the other files of that are not deployed. Bundler 4 notes checksums
# there, of gems that it installs, and not of those that the system has: then it would want to note them when it deploys.
def install(dir)
  bundle(dir, { "BUNDLE_PATH" => "developer" }, "install", "--local")
  FileUtils.rm_rf(["#{dir}/.bundle", "#{dir}/developer"])
  bundle(dir, SETTINGS, "install", "--local")
  inside = bundle(dir, SETTINGS, "exec", "ruby", "-e", 'puts Gem.loaded_specs.values_at("rhebok-rs", "rack").map(&:full_gem_path)').lines(chomp: true)
  abort "deploy: not from vendor/bundle: #{inside}" unless inside.all? { |path| path.start_with?("#{File.realpath(dir)}/vendor/bundle/") }
end

def serve(dir)
  port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
  command = File.read("#{dir}/Procfile")[/^web: (.+)$/, 1]
  dyno = { "HOME" => dir, "PORT" => port.to_s, "WEB_CONCURRENCY" => "2", "DYNO" => "web.1" }
  server = spawn(CLEAN.merge(SETTINGS, dyno), "sh", "-c", "exec #{command}", chdir: dir, in: File::NULL, %i[out err] => "#{dir}/log")
  (SECONDS * 20).times { File.read("#{dir}/log").include?("Fastrack is ready") ? break : sleep(0.05) }
  page = Net::HTTP.get(URI("http://127.0.0.1:#{port}/"))
  abort "deploy: a wrong page: #{page}\n#{File.read("#{dir}/log")}" unless page.match?(/Dyno web\.1, worker \d+\n\z/)
  Process.kill(:TERM, server)
  _, status = Process.wait2(server)
  abort "deploy: #{status}\n#{File.read("#{dir}/log")}" unless status.success?
end

abort "usage: deploy.rb GEM EXAMPLE" unless ARGV.size == 2
Dir.mktmpdir("deploy") do |dir|
  package, example = ARGV.map { |path| File.expand_path(path) }
  FileUtils.cp_r("#{example}/.", dir)
  vendor(dir, package)
  install(dir)
  serve(dir)
  puts "deploy: installed from vendor/cache alone, served on $PORT, ended by TERM"
end
