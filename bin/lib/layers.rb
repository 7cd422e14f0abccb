# frozen_string_literal: true

# Fails when a Rust file names a module of its crate that is above its own, or when modules import each other in a circle:
#
#     ruby bin/lib/layers.rb [ROOT]
#
# A module is a folder or file right under `src`. The check reads paths that begin with `crate::` or `super::`, outside of comments and
# unit tests. Cargo.toml says which crates a crate may import, and cargo holds it to that.

require "tsort"

# The modules of each crate, bottom first. Those on one line are one layer. lib.rs is above all of them.
ORDER = {
  "crates/http" => <<~MODULES,
    bytes connection_options date error field_lines field_name status_code transfer_codings
    chunk_extension framing limits target
    chunked
    app_chunks head response
    forwarded
    error_response
  MODULES
  "crates/sys" => <<~MODULES,
    proc_stat
    app_user clock fd fd_limit memory process shared_memory signals stack thread_id
    fd_passing heap_holes socket thread
    own_descriptors sendfile stderr thread_turns wakeup
    poller
  MODULES
  "crates/engine" => <<~MODULES,
    clock fork scoreboard sync
    admission claim
    access_log control
    accept
    settings
    conn
    app
    handoff
    reactor
    shared
    ending
    helper
    worker
  MODULES
  "crates/monitor" => <<~MODULES,
    master process settings
    backlog
    view
    metrics status
    answer
    clients
    socket_file
    monitor
  MODULES
  "crates/proxy" => <<~MODULES,
    control fields local proxy_protocol ranges stats tls
    compress connection
    acme
    settings
    files
    body
    change upstream
    handler
    server
    run
  MODULES
  "ext/fastrack" => <<~MODULES
    ruby
    env
    request
    response
    app
    worker
  MODULES
}.freeze

TESTS = /^#\[cfg\((?:all\()?test\b[^\n]*\n(?:#\[path[^\n]*\n)?mod \w+ ?\{.*\z|^#\[cfg\(test\)\][^\n]*\n(?:#\[path[^\n]*\n)?mod \w+;/m.freeze

# @return [Hash{String => String}] the module that each name of lib.rs comes from
def exported(source)
  # A program has a main.rs, and exports nothing.
  return {} unless File.exist?("#{source}/lib.rs")

  uses = File.read("#{source}/lib.rs").scan(/^pub use (\w+)::(?:\w+::)*(?:\{([^}]*)\}|(\w+));/m)
  uses.flat_map { |from, several, one| (several || one).scan(/\w+/).map { |name| [name, from] } }.to_h
end

# @return [Array<Array(String, Integer)>] what comes after `crate::`, or after a `super::` that leads there, and its line
def paths(file, depth)
  text = File.read(file).sub(TESTS, "").gsub(%r{//[^\n]*}, "")
  text.lines.each_with_index.flat_map do |line, index|
    ups = line.scan(/\b((?:super::)+)(\w+)/).filter_map { |up, name| name if up.scan("super").size == depth }
    (line.scan(/\bcrate::(\{|\w+)/).flatten + ups).map { |name| [name, index + 1] }
  end
end

problems = []
Dir.chdir(ARGV.first || File.expand_path("../..", __dir__))
ORDER.each do |crate, order|
  source = "#{crate}/src"
  heights = order.lines.each_with_index.flat_map { |line, height| line.split.map { |name| [name, height] } }.to_h
  exports = exported(source)
  imports = Hash.new { |hash, name| hash[name] = [] }
  Dir["#{source}/**/*.rs"].sort.each do |file|
    words = file.delete_prefix("#{source}/").delete_suffix(".rs").split("/") - ["mod"]
    next if [["lib"], ["main"]].include?(words) || words.include?("tests")

    own = words.first
    heights[own] or problems << "#{file}: #{own} is in no layer of bin/lib/layers.rb"
    paths(file, words.size).each do |name, line|
      name = exports.fetch(name, name)
      problems << "#{file}:#{line}: one `use` for each module, not crate::{...}" if name == "{"
      next unless heights[name] && heights[own] && name != own

      imports[own] |= [name]
      problems << "#{file}:#{line} imports #{name}, which is above #{own}" if heights[name] > heights[own]
    end
  end
  (heights.keys - Dir.children(source).map { |name| name.delete_suffix(".rs") }).each { |name| problems << "#{source} has no #{name}" }
  circles = TSort.strongly_connected_components(heights.keys.method(:each), ->(name, &block) { imports[name].each(&block) }).select { |names| names.size > 1 }
  circles.each { |names| problems << "#{source}: a circle of imports: #{names.sort.join(" ")}" }
end
puts problems, "layers: #{ORDER.size} crates, #{problems.size} problems"
exit problems.empty?
